"""Finds installed bundles by the names of their folders, for removing them."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import path_text
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["NotInstalled", "installed"]


class NotInstalled(ConfigError):
    """There is no bundle {name} in {places}.{near}"""


def installed(name: str, places: Sequence[Path]) -> Path:
    """The folder, or link to one, of the bundle ``name``, whether its metadata is good or not.

    A folder without metadata is no bundle, and is not found. Raises NotInstalled.
    """
    known: dict[str, Path] = {}
    for place in places:
        for child in sorted(place.iterdir()) if place.is_dir() else ():
            if not child.name.startswith(".") and (os.path.lexists(child / FILE_NAME) or _is_broken_link(child)):
                known.setdefault(child.name, child)
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=3)
    near = f" Did you mean {' or '.join(close)}?" if close else ""
    raise NotInstalled(name=shown(name), places=", ".join(map(path_text, places)), near=near)


def _is_broken_link(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
