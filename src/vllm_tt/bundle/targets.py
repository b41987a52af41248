"""From the paths on a command line to reports: bundles, folders of bundles, and files inside bundles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.bundle.discover import folder_list
from vllm_tt.bundle.findings import Finding, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.validate import Depth, Report, validate, validate_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["reports_for", "reports_for_variable", "without_mark"]

_MARK = b"\xef\xbb\xbf"


def reports_for(paths: Iterable[str], depth: Depth, *, every: bool = False) -> list[Report]:
    """Reports of what the paths name.

    A folder without metadata whose children have it stands for these; a file stands for the bundle that
    it is in. With ``every`` each path is a folder of bundles that are served together.
    """
    seen: set[str] = set()
    reports: list[Report] = []
    for text in paths:
        path = Path(text)
        folder = _bundle_of(path) if path.is_file() else path
        place = os.path.abspath(folder)  # noqa: PTH100 - a link keeps its name
        if place in seen:
            continue
        seen.add(place)
        scan = every or _holds_bundles(folder)
        reports += validate_all(folder, depth, together=every) if scan else [validate(folder, depth)]
    return reports


def reports_for_variable(value: str, depth: Depth) -> list[Report]:
    """Reports of all bundles in the folders that a value of ``EXTRA_MODELS_DIR`` names."""
    folders = folder_list(value)
    reports = [one for folder in folders for one in validate_all(folder, depth)]
    note = _ambiguous(value, folders)
    here = folders[0] if folders else Path()
    return [Report(folder=here, findings=(note,), is_bundle=False), *reports] if note else reports


def without_mark(folder: Path) -> bool:
    """Whether the folder's metadata began with a byte-order mark, which is gone now."""
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
        if not data.startswith(_MARK):
            return False
        aside = path.with_name(f".{FILE_NAME}.{os.getpid()}")
        aside.write_bytes(data[len(_MARK) :])
        aside.chmod(path.stat().st_mode & 0o7777)
        aside.replace(path.resolve())
    except IsADirectoryError:
        return False
    return True


def _bundle_of(file: Path) -> Path:
    """The closest folder above a file that has metadata; the file's own, when there is none."""
    start = Path(os.path.abspath(file))  # noqa: PTH100
    found = next((one for one in start.parents if os.path.lexists(one / FILE_NAME)), None)
    if found is None or found == start.parent:
        return file.parent
    return Path(os.path.relpath(found)) if not file.is_absolute() else found


def _holds_bundles(folder: Path) -> bool:
    if os.path.lexists(folder / FILE_NAME):
        return False
    try:
        return any(os.path.lexists(child / FILE_NAME) for child in folder.iterdir() if child.name[0] != ".")
    except OSError:
        return False


def _ambiguous(value: str, folders: Sequence[Path]) -> Finding | None:
    plain = os.pathsep.join(map(str, folders))
    if (
        not folders
        or value == plain
        or {part.rstrip("/") for part in value.split(os.pathsep)} == set(map(str, folders))
    ):
        return None
    return finding("TB012", f"EXTRA_MODELS_DIR={shown(value, 256)} is read as {plain}").at("")
