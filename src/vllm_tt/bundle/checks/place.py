"""Where a bundle lies and what its folder is called."""

from __future__ import annotations

import itertools
import json
import os
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import path_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["near_miss", "own_name", "place_findings"]

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_CLOSE = 0.88
_SMALL = 1 << 16
_LOOKED_AT = 1000


def place_findings(folder: Path, metadata: Metadata | None) -> Iterator[Finding]:
    """What there is to say of the folder itself."""
    name = own_name(folder)
    if name.startswith("."):
        yield finding("TB006", "hidden folders are not registered").graded(Severity.ERROR).at("")
    elif not _PLAIN_NAME.fullmatch(name):
        used = metadata.name if metadata else None
        then = f"{used!r}, the 'name' in the metadata, is used" if used else "give the metadata a 'name'"
        yield finding("TB007", f"folder name {shown(name)} is not usable as an archive or module name; {then}").at("")
    if folder.is_symlink():
        target = shown(str(folder.readlink()), 256)
        yield finding("TB008", f"{path_text(folder)} is a symbolic link -> {target}").at("")


def own_name(folder: Path) -> str:
    """The folder's name, also where the path ends in ``.`` or ``..``."""
    return os.path.basename(os.path.abspath(folder))  # noqa: PTH100, PTH119 - a link keeps its name


def near_miss(folder: Path) -> Finding | None:
    """A file that was meant to be the metadata, in a folder that has none."""
    try:
        names = sorted(entry.name for entry in itertools.islice(folder.iterdir(), _LOOKED_AT) if entry.is_file())
    except OSError:
        return None
    near = [name for name in names if SequenceMatcher(None, name.lower(), FILE_NAME).ratio() > _CLOSE]
    near += [name for name in names if name.lower() == "metadata.json" and _holds_metadata(folder / name)]
    if not near:
        return None
    return finding("TB005", f"found {shown(near[0])}; the name must be exactly {FILE_NAME}").at("")


def _holds_metadata(path: Path) -> bool:
    try:
        if path.stat().st_size > _SMALL:
            return False
        root = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(root, dict) and "arch" in root and "main_class" in root
