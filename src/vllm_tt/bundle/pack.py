"""Packs a selection into one archive file: written aside, put in place when it is whole."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from vllm_tt.bundle import archive
from vllm_tt.bundle.compression import MAGIC
from vllm_tt.bundle.findings import shown
from vllm_tt.bundle.install import DestinationExists
from vllm_tt.bundle.paths import path_fault
from vllm_tt.bundle.reading import path_text
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_tt.bundle.archive import Progress
    from vllm_tt.bundle.files import Selection
    from vllm_tt.bundle.lock import Lock

__all__ = ["SUFFIX", "OutputInside", "Packed", "default_name", "pack", "pack_to", "write_aside"]

SUFFIX = ".tar.gz"


class OutputInside(ConfigError):
    """The output {path} would be inside the bundle. Name a place outside of {folder} with -o."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """What was written."""

    lock: Lock
    size: int
    """Bytes of the archive."""
    sha256: str
    """Of the archive."""


class _Counting:
    """Digest and size of what goes through."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self.digest.update(data)
        self._out.write(data)


def default_name(selection: Selection, folder: Path) -> str:
    """The archive's file name: the bundle's name, else its folder's, and its version."""
    metadata = selection.metadata
    name = archive.folder_name(metadata) if metadata and metadata.name else os.path.basename(os.path.abspath(folder))  # noqa: PTH100, PTH119 - a link keeps its name
    version = metadata.version if metadata else None
    good = version and path_fault(version) is None and "/" not in version
    return f"{name}-{version}{SUFFIX}" if good else f"{name}{SUFFIX}"


def pack(selection: Selection, out: BinaryIO, progress: Progress | None = None) -> Packed:
    """Write the archive to a stream. The selection must not be faulty."""
    assert not selection.faulty, "a faulty selection is not shipped"
    counting = _Counting(out)
    lock = archive.write(selection, counting, progress)
    return Packed(lock=lock, size=counting.size, sha256=counting.digest.hexdigest())


def pack_to(selection: Selection, path: Path, *, force: bool = False, progress: Progress | None = None) -> Packed:
    """Write the archive file, in place of an older archive of ours or, with ``force``, of any file.

    Raises OutputInside, DestinationExists, files.Changed and OSError, all of which leave things as they were.
    """
    place = path.parent.resolve(strict=True) / path.name
    if place.is_relative_to(selection.folder):
        raise OutputInside(path=path_text(path), folder=path_text(selection.folder))
    if place.is_dir() or (os.path.lexists(place) and not force and not _is_archive(place)):
        raise DestinationExists(name=shown(path.name))
    packed: list[Packed] = []
    write_aside(place, lambda out: packed.append(pack(selection, out, progress)))
    return packed[0]


def write_aside(place: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a new file beside ``place``, then give it that name; when it fails, no file is left."""
    aside = place.with_name(f".tmp-tt-bundle-{os.urandom(8).hex()}")
    try:  # from before the file is made: an interruption may come at any moment
        with aside.open("xb") as out:
            write(out)
        aside.replace(place)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
