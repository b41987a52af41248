"""Finds the bundles in the folders that ``EXTRA_MODELS_DIR`` names. Never raises, never imports a bundle.

Runs in every vLLM process: each bundle costs a few system calls. One bad bundle is one skipped bundle.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_tt.bundle.findings import Finding, Reader, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import Bundle, Skipped, cause, load, path_text
from vllm_tt.bundle.requires import Installed, check_requires

__all__ = ["Bundle", "Discovery", "Notice", "Skipped", "discover", "folder_list"]

_LOOKED_AT = 1000
"""Entries of a folder without metadata that are looked through for a misspelt one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Something to say about a folder that is not itself a bundle."""

    path: Path
    finding: Finding


@dataclass(frozen=True, kw_only=True, slots=True)
class Discovery:
    """What a scan found: bundles in the order of their folders' names."""

    bundles: tuple[Bundle, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    folders: tuple[Path, ...] = ()
    """The folders scanned, absolute."""
    notices: tuple[Notice, ...] = ()


def discover(value: str | None, *, ignore_requires: bool = False) -> Discovery:
    """Scan the folder, or list of folders, that ``value`` names for bundles.

    ``ignore_requires`` takes bundles whose requirements are not met, with a finding instead.
    """
    folders = folder_list(value)
    seen: set[tuple[int, int]] = set()
    installed = Installed()
    bundles: list[Bundle] = []
    skipped: list[Skipped] = []
    notices: list[Notice] = []
    for folder in folders:
        before = len(bundles)
        for child in _children(folder, notices):
            found = _examine(child, seen)
            if isinstance(found, Bundle):
                found = _required(found, installed, ignore_requires)
            if isinstance(found, Bundle):
                bundles.append(found)
            elif isinstance(found, Skipped):
                skipped.append(found)
            elif found is not None:
                notices.append(found)
        if misplaced := _misplaced(folder, empty=len(bundles) == before):
            notices.append(Notice(path=folder, finding=misplaced))
    return Discovery(bundles=tuple(bundles), skipped=tuple(skipped), folders=folders, notices=tuple(notices))


def folder_list(value: str | None) -> tuple[Path, ...]:
    """The folders that a value of ``EXTRA_MODELS_DIR`` names: absolute, ``~`` expanded, each once.

    A value that is itself a folder is taken whole, whatever characters it holds.
    """
    text = _bare(value or "")
    if not text:
        return ()
    parts = [text] if _is_folder(_absolute(text)) else [_bare(part) for part in text.split(os.pathsep) if _bare(part)]
    return tuple(dict.fromkeys(map(_absolute, parts)))


def _bare(text: str) -> str:
    return text.strip().strip("'\"")  # quotes that a configuration file left in


def _absolute(text: str) -> Path:
    try:
        # Not resolved: a link stays the name that the user knows the folder by.
        return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111
    except (OSError, ValueError):  # the current folder is gone
        return Path(text)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _children(folder: Path, notices: list[Notice]) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_symlink() or entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        fault = finding("TB001", f"EXTRA_MODELS_DIR: {path_text(folder)} is not a directory")
    except (OSError, ValueError) as error:
        fault = finding("TB002", f"EXTRA_MODELS_DIR: cannot read {path_text(folder)}: {cause(error)}")
    else:
        return [folder / name for name in names]
    notices.append(Notice(path=folder, finding=fault))
    return []


def _examine(child: Path, seen: set[tuple[int, int]]) -> Bundle | Skipped | Notice | None:
    """What a folder's child is; None for one that is no bundle."""
    try:
        here = child.stat()
        if not stat.S_ISDIR(here.st_mode):
            return None
        if not os.path.lexists(child / FILE_NAME):
            return _without_metadata(child)
    except OSError as error:
        # Editors lock files with hidden links that point nowhere.
        hidden = child.name.startswith(".")
        return None if hidden else Skipped(folder=child, finding=_unreadable(child, error))
    if child.name.startswith("."):
        return Notice(path=child, finding=finding("TB006", f"ignoring hidden folder {path_text(child)}"))
    if (here.st_dev, here.st_ino) in seen:
        what = f"ignoring {path_text(child)}: another name of a bundle found before"
        return Notice(path=child, finding=finding("TB008", what))
    seen.add((here.st_dev, here.st_ino))
    return load(child)


def _unreadable(child: Path, error: OSError) -> Finding:
    if error.errno in (errno.ENOENT, errno.ELOOP) and child.is_symlink():
        return finding("TB009", f"broken symbolic link -> {shown(str(child.readlink()), 256)}")
    return finding("TB010", f"cannot read folder: {cause(error)}")


def _without_metadata(child: Path) -> Skipped | None:
    # A folder of bundles often is a folder of many other things: those stay silent.
    with os.scandir(child) as entries:
        names = [entry.name for entry in itertools.islice(entries, _LOOKED_AT)]
    near = next((name for name in names if name.lower() == FILE_NAME), None)
    if near is None or child.name.startswith("."):
        return None
    return Skipped(folder=child, finding=finding("TB005", f"found {near!r}; the name must be exactly {FILE_NAME}"))


def _required(bundle: Bundle, installed: Installed, ignore: bool) -> Bundle | Skipped:
    found = check_requires(bundle.metadata.requires, installed)
    fault = next((one for one in found if one.reader is Reader.SKIP), None)
    if fault is None:
        return replace(bundle, findings=(*bundle.findings, *found)) if found else bundle
    if not ignore:
        return Skipped(folder=bundle.folder, finding=fault)
    loaded = [_ignored(one) if one.reader is Reader.SKIP else one for one in found]
    return replace(bundle, findings=(*bundle.findings, *loaded))


def _ignored(found: Finding) -> Finding:
    message = f"{found.message}; registered nevertheless (TT_BUNDLE_IGNORE_REQUIRES is set)"
    return replace(found, reader=Reader.WARN, message=message)


def _misplaced(folder: Path, *, empty: bool) -> Finding | None:
    """What is wrong with a folder that is a bundle, or a package of them, itself."""
    text = path_text(folder)
    if os.path.lexists(folder / FILE_NAME):
        parent = path_text(folder.parent)
        what = f"EXTRA_MODELS_DIR={text} itself looks like a bundle; point it at the parent directory ({parent!r})"
        return finding("TB003", what)
    inner = folder / "vllm_models"
    if empty and (os.path.lexists(folder / "tt_kernel_manifest.json") or _is_folder(inner)):
        return finding("TB013", f"EXTRA_MODELS_DIR={text} is a tt-model package; use {path_text(inner)}")
    return None
