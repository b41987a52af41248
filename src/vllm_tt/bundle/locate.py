"""Finds the one bundle that a command line names: a folder, or a name under ``EXTRA_MODELS_DIR``."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.bundle.discover import folder_list
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import Bundle, load, path_text
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BundleBroken", "BundleNotFound", "locate"]


class BundleNotFound(ConfigError):
    """There is no bundle {name!r}: it is no folder with a vllm_metadata.json, and {looked}.{near}"""


class BundleBroken(TTError):
    """{folder} cannot be served: {reason}. Run 'tt-bundle validate {folder}' for details."""


def locate(name: str, extra_models_dir: str | None = None) -> Bundle:
    """The bundle in the folder ``name``, or of that name (folder's or metadata's) in ``extra_models_dir``.

    Raises BundleNotFound, or BundleBroken when its metadata cannot be used.
    """
    folder = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - a link keeps its name
    if os.path.lexists(folder / FILE_NAME) or os.sep in name:
        return _usable(folder) if folder.is_dir() else _missing(name, (), {})
    places = folder_list(extra_models_dir)
    known = _known(places)
    found = next((path for path in known.values() if path.name == name), known.get(name))
    return _usable(found) if found is not None else _missing(name, places, known)


def _usable(folder: Path) -> Bundle:
    found = load(folder)
    if not isinstance(found, Bundle):
        raise BundleBroken(folder=path_text(folder), reason=found.reason)
    return found


def _known(places: Sequence[Path]) -> Mapping[str, Path]:
    """Bundle folders by name; a folder's own name wins over names in metadata, earlier ones over later ones."""
    folders: dict[str, Path] = {}
    declared: dict[str, Path] = {}
    for place in places:
        for child in sorted(place.iterdir()) if place.is_dir() else ():
            if child.name.startswith(".") or not os.path.lexists(child / FILE_NAME):
                continue
            folders.setdefault(child.name, child)
            found = load(child)
            if isinstance(found, Bundle) and found.metadata.name:
                declared.setdefault(found.metadata.name, child)
    return declared | folders


def _missing(name: str, places: Sequence[Path], known: Mapping[str, Path]) -> Bundle:
    close = difflib.get_close_matches(name, known, n=3)
    raise BundleNotFound(
        name=name,
        looked=f"none of that name is in {', '.join(map(path_text, places))}"
        if places
        else "EXTRA_MODELS_DIR is not set",
        near=f" Did you mean {' or '.join(close)}?" if close else "",
    )
