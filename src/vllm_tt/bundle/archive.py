"""One bundle as one file: a gzip-compressed tar with one folder, its files in order, and the lock at the end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO

from vllm_tt.bundle.compression import Compressor, Expanded, refused
from vllm_tt.bundle.files import LOCK_NAME, MAX_FILES, MAX_SIZE, Changed
from vllm_tt.bundle.findings import shown
from vllm_tt.bundle.lock import MAX_BYTES, LockedFile, lock_of
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.names import plain_name
from vllm_tt.bundle.paths import amount, folded, path_fault
from vllm_tt.bundle.tarball import END, header, members, padding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_tt.bundle.compression import Writable
    from vllm_tt.bundle.files import BundleFile, Selection
    from vllm_tt.bundle.lock import Lock
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["Contents", "Progress", "folder_name", "read", "write"]

Progress = Callable[[int], object]
"""Is told the bytes of each piece that is done."""

_PIECE = 1 << 18
_KEPT = (FILE_NAME, LOCK_NAME)
_OVERHEAD = 64 << 20
"""Bytes that headers and the lock of the largest bundle stay below."""
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _SAFELY


@dataclass(slots=True)
class Contents:
    """What an archive holds, paths without its top folder."""

    files: dict[str, LockedFile] = field(default_factory=dict)
    """All files but the lock."""
    top: str = ""
    """The folder that everything is in; empty when there is none."""
    metadata: bytes = b""
    lock: bytes | None = None
    """The lock file's contents, None when there is none."""


def folder_name(metadata: Metadata | None) -> str:
    """The folder inside a bundle's archive: of the metadata alone, so that a bundle's folder may have any name."""
    name = metadata.name if metadata and metadata.name else ""
    if name and "/" not in name and not name.startswith(".") and path_fault(name) is None:
        return name
    return plain_name(metadata.arch) if metadata else "bundle"


def write(selection: Selection, out: Writable, progress: Progress | None = None) -> Lock:
    """Write the archive of a selection, reading each file once. Raises files.Changed, OSError."""
    top = folder_name(selection.metadata)
    compressor = Compressor(out)
    locked = []
    for file in selection.files:
        compressor.write(header(f"{top}/{file.path}", file.size, executable=file.executable))
        digest = hashlib.sha256()
        for piece in _pieces(file):
            digest.update(piece)
            compressor.write(piece)
            if progress:
                progress(len(piece))
        compressor.write(padding(file.size))
        locked.append(LockedFile(path=file.path, size=file.size, sha256=digest.hexdigest()))
    lock = lock_of(selection.metadata, locked)
    data = lock.to_bytes()
    compressor.write(header(f"{top}/{LOCK_NAME}", len(data), executable=False))
    compressor.write(data + padding(len(data)) + END)
    compressor.close()
    return lock


def read(source: BinaryIO, into: Path | None = None, *, max_size: int = MAX_SIZE) -> Contents:
    """Read an archive to its end, writing its files below the existing folder ``into`` where one is given.

    Raises ArchiveRefused for what is no bundle's archive; what was written by then is the caller's to delete.
    """
    reading = _Reading(max_size=max_size)
    root = None if into is None else os.open(into, _FOLDER)
    try:
        for member, pieces in members(Expanded(source, max_size, slack=_OVERHEAD)):
            path = member.path.removeprefix("./")
            if member.folder and path in ("", "."):
                continue
            reading.enter(path, folder=member.folder)
            if not member.folder:
                reading.expect(member.size)
                with _file(root, path, member.executable) as write:
                    reading.file(path, pieces, write)
    finally:
        if root is not None:
            os.close(root)
    return reading.contents()


@dataclass(slots=True)
class _Reading:
    """The checks of members against those before them."""

    max_size: int
    seen: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By folded path: the path, and whether it is a folder."""
    files: dict[str, LockedFile] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    top: str | None = None
    members: int = 0
    size: int = 0

    def enter(self, path: str, *, folder: bool) -> None:
        self.members += 1
        if self.members > 2 * MAX_FILES or len(self.files) > MAX_FILES:
            raise refused("TB903", f"archive has more than {MAX_FILES} members")
        if fault := path_fault(path):
            raise refused("TB901", f"unsafe path in archive: {shown(path)} {fault}")
        if not folder and path in self.files:
            raise refused("TB904", f"archive holds {shown(path)} twice")
        self._see(path, folder=folder)
        parent = path.rpartition("/")[0]
        while parent and self.seen.get(folded(parent)) != (parent, True):
            self._see(parent, folder=True)
            parent = parent.rpartition("/")[0]
        self.top = path.partition("/")[0] if self.top is None else self.top

    def expect(self, size: int) -> None:
        self.size += size
        if self.size > self.max_size:
            raise refused("TB903", f"archive expands to more than {amount(self.max_size)}", "--max-size raises it")

    def file(self, path: str, pieces: Iterator[bytes], write: Callable[[bytes], object]) -> None:
        digest, size, kept = hashlib.sha256(), 0, bytearray()
        keep = path in _KEPT or path in [f"{self.top}/{name}" for name in _KEPT]
        for piece in pieces:
            write(piece)
            digest.update(piece)
            size += len(piece)
            if keep and len(kept) <= MAX_BYTES:
                kept += piece
        self.files[path] = LockedFile(path=path, size=size, sha256=digest.hexdigest())
        if keep:
            self.kept[path] = bytes(kept)

    def contents(self) -> Contents:
        top = ""
        if FILE_NAME not in self.files:
            top = f"{self.top}/"
            if f"{top}{FILE_NAME}" not in self.files or not all(path.startswith(top) for path in self.files):
                raise refused("TB905", f"not a bundle archive: {FILE_NAME} not found at depth 0 or 1")
        files = {
            path.removeprefix(top): replace(file, path=path.removeprefix(top)) for path, file in self.files.items()
        }
        files.pop(LOCK_NAME, None)
        lock, metadata = self.kept.get(top + LOCK_NAME), self.kept[top + FILE_NAME]
        return Contents(files=files, top=top.rstrip("/"), metadata=metadata, lock=lock)

    def _see(self, path: str, *, folder: bool) -> None:
        other, was_folder = self.seen.setdefault(folded(path), (path, folder))
        if other != path:
            raise refused("TB904", f"archive holds {shown(other)} and {shown(path)}, the same name on some systems")
        if was_folder != folder:
            raise refused("TB904", f"archive holds {shown(path)} as a file and as a folder")


@contextmanager
def _file(root: int | None, path: str, executable: bool) -> Iterator[Callable[[bytes], object]]:
    """What writes the contents of a new file below an open folder; no link is followed on the way to it."""
    if root is None:
        yield len
        return
    *folders, name = path.split("/")
    folder = os.dup(root)
    try:
        for part in folders:
            inner = _subfolder(folder, part)
            os.close(folder)
            folder = inner
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        os.fchmod(descriptor, 0o755 if executable else 0o644)
        yield file.write


def _subfolder(folder: int, name: str) -> int:
    made = False
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
        made = True
    inner = os.open(name, _FOLDER, dir_fd=folder)
    if made:
        os.fchmod(inner, 0o755)
    return inner


def _pieces(file: BundleFile) -> Iterator[memoryview]:
    buffer, left = memoryview(bytearray(_PIECE)), file.size
    with file.open() as opened:
        while read := opened.readinto(buffer):  # type: ignore[attr-defined]  # of every binary file
            left -= read
            if left < 0:
                raise Changed(path=file.path)
            yield buffer[:read]
    if left:
        raise Changed(path=file.path)
