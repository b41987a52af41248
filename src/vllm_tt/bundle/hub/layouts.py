"""Recognises the bundles of a repository from the names of its files, and says where each file of a bundle goes.

tt-model publishes in several layouts: a bundle in ``vllm_bundle/`` (3); the same, or no code at all
but a manifest to render the metadata from (4); metadata in ``vllm_models/<name>/`` with the code in
``metal/`` (5) or beside it at the root (6). Our own repositories and hand-made ones have ``vllm_bundle/``
or the metadata at the root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt.bundle.files import LOCK_NAME, is_junk
from vllm_tt.bundle.findings import shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.paths import folded, path_fault
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_tt.bundle.hub.manifest import Manifest

__all__ = [
    "BUNDLE_DIR",
    "Contents",
    "NoBundle",
    "NoSuchBundle",
    "Source",
    "UnsafePath",
    "chosen",
    "recognise",
]

BUNDLE_DIR = "vllm_bundle"
_MODELS_DIR = "vllm_models"
_SCRIPTS = ("run.sh", "install.sh")
_PACKAGING = re.compile(
    r"(?:README\.md|\.gitattributes|\.gitignore|tt_kernel_manifest\.json|run\.sh|install\.sh|requirements[^/]*\.txt)"
    r"|(?:wheels|vllm_models|vllm_bundle)/.*"
)
"""Files of a repository that belong to its package and not to the bundle at its root."""
_CARD = ("README.md", ".gitattributes", "tt_kernel_manifest.json")


class NoBundle(TTError):
    """no bundle found in {repo} (looked for vllm_metadata.json at the root, in vllm_bundle/ and in vllm_models/*/)"""


class NoSuchBundle(ConfigError):
    """{repo} has no bundle {name!r}; it has {found}."""


class UnsafePath(TTError):
    """unsafe path in {repo}: {path} {fault}. Nothing was installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One bundle of a repository."""

    name: str | None
    """Its folder in ``vllm_models/``; None where the repository is one bundle."""
    files: Mapping[str, str]
    """Where each of its files is in the repository, by its path in the bundle."""
    optional: frozenset[str] = frozenset()
    """Paths in the bundle that belong to it only when its lock lists them."""
    shared: bool = False
    """Whether files of the package around it are among them, which its manifest need not list."""
    metadata: bytes | None = None
    """The metadata file, where the repository has none and the manifest says what it would hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What a repository holds."""

    layout: str
    bundles: tuple[Source, ...]
    several: bool = False
    """Whether each bundle is installed under its own name."""
    scripts: tuple[str, ...] = field(default=())
    """Scripts of its package, which are never run."""


def recognise(repo: str, paths: Iterable[str], manifest: Manifest | None = None) -> Contents:
    """The bundles among the files ``paths``; raises NoBundle, or UnsafePath for a file that must not be written."""
    listed = sorted(path for path in paths if not _is_junk(path))
    for reader in (_at_root, _in_bundle_dir, _in_models_dir):
        found = reader(listed, manifest)
        if found is not None:
            break
    else:
        raise NoBundle(repo=repo)
    for source in found.bundles:
        _check_paths(repo, source)
    return found


def chosen(repo: str, contents: Contents, only: tuple[str, ...]) -> tuple[Source, ...]:
    """The bundles of the names ``only``, or all."""
    if not only:
        return contents.bundles
    by_name = {source.name: source for source in contents.bundles if source.name is not None}
    for name in only:
        if name not in by_name:
            found = ", ".join(sorted(by_name)) or "one bundle, without a name"
            raise NoSuchBundle(repo=repo, name=name, found=found)
    return tuple(by_name[name] for name in dict.fromkeys(only))


def _at_root(paths: list[str], _manifest: Manifest | None) -> Contents | None:
    if FILE_NAME not in paths:
        return None
    files = {path: path for path in paths}
    source = Source(name=None, files=files, optional=frozenset(files).intersection(_CARD))
    return Contents(layout="root", bundles=(source,), scripts=_scripts(paths))


def _in_bundle_dir(paths: list[str], manifest: Manifest | None) -> Contents | None:
    files = _below(BUNDLE_DIR, paths)
    if FILE_NAME in files:
        return Contents(layout=BUNDLE_DIR, bundles=(Source(name=None, files=files),), scripts=_scripts(paths))
    rendered = manifest.rendered() if manifest is not None else None
    if rendered is None:
        return None
    files.pop(LOCK_NAME, None)  # it says nothing of a bundle whose metadata is made here
    source = Source(name=None, files=files, metadata=rendered)
    return Contents(layout="manifest", bundles=(source,), scripts=_scripts(paths))


def _in_models_dir(paths: list[str], manifest: Manifest | None) -> Contents | None:
    names = [path.split("/")[1] for path in paths if re.fullmatch(rf"{_MODELS_DIR}/[^/]+/{FILE_NAME}", path)]
    if not names:
        return None
    metal = (manifest.metal_dir if manifest is not None else None) or "metal"
    code = _below(metal, paths)
    layout = "vllm_models with " + (f"{metal}/" if code else "code at the root")
    if not code:
        code = {path: path for path in paths if not _PACKAGING.fullmatch(path)}
    bundles = tuple(
        Source(name=name, files={**code, **_below(f"{_MODELS_DIR}/{name}", paths)}, shared=True)
        for name in sorted(set(names))
    )
    return Contents(layout=layout, bundles=bundles, several=len(bundles) > 1, scripts=_scripts(paths))


def _below(folder: str, paths: list[str]) -> dict[str, str]:
    prefix = folder + "/"
    return {path.removeprefix(prefix): path for path in paths if path.startswith(prefix)}


def _scripts(paths: list[str]) -> tuple[str, ...]:
    return tuple(name for name in _SCRIPTS if name in paths)


def _is_junk(path: str) -> bool:
    return path.startswith(".cache/huggingface/") or any(map(is_junk, path.split("/")))


def _check_paths(repo: str, source: Source) -> None:
    def refuse(path: str, fault: str) -> UnsafePath:
        return UnsafePath(repo=repo, path=shown(path), fault=fault)

    seen: dict[str, str] = {}
    for path in source.files:
        if fault := path_fault(path):
            raise refuse(path, fault)
        place = path
        while place:
            other = seen.setdefault(folded(place), place)
            if other != place:
                raise refuse(path, f"and {shown(other)} are the same name on some systems")
            place = place.rpartition("/")[0]
    folders = {path.rpartition("/")[0] for path in source.files}
    if both := next((path for path in source.files if path in folders), None):
        raise refuse(both, "is a file and a folder")
    if source.name is not None and (path_fault(source.name) or source.name.startswith(".")):
        raise refuse(f"{_MODELS_DIR}/{source.name}", "is not a name for a folder")
