"""Reads one bundle folder's metadata file, whatever lies at its place. Never raises, never blocks."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, finding, shown
from vllm_tt.bundle.jsontext import MAX_BYTES
from vllm_tt.bundle.metadata import FILE_NAME, Metadata, parse

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Bundle", "Skipped", "cause", "load", "path_text", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A folder whose metadata can be registered; ``findings`` hold what is wrong with it nevertheless."""

    folder: Path
    metadata: Metadata
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name, fit for a message."""
        return _printable(self.folder.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A folder that is a bundle and cannot be registered, and why."""

    folder: Path
    finding: Finding

    @property
    def name(self) -> str:
        """The folder's name, fit for a message."""
        return _printable(self.folder.name)

    @property
    def reason(self) -> str:
        return self.finding.text

    @property
    def warning(self) -> str:
        folder = path_text(self.folder)
        return f"Skipping bundle {folder}: {self.reason}. Run 'tt-bundle validate {folder}' for details."


def load(folder: Path) -> Bundle | Skipped:
    """Read one bundle's metadata, whatever folder it is in."""
    data = read(folder)
    if isinstance(data, Finding):
        return Skipped(folder=folder, finding=data)
    parsed = parse(data)
    if parsed.metadata is not None:
        return Bundle(folder=folder, metadata=parsed.metadata, findings=parsed.findings)
    fault = parsed.fault
    assert fault is not None, "no metadata without a fault"
    return Skipped(folder=folder, finding=fault)


def read(folder: Path) -> bytes | Finding:
    """The bytes of a folder's metadata file, or why there are none."""
    try:
        return _read(folder / FILE_NAME)
    except FileNotFoundError:
        return finding("TB004", f"no {FILE_NAME} in it (not a bundle folder)")
    except (OSError, ValueError) as error:
        return finding("TB010", f"cannot read {FILE_NAME}: {cause(error)}")


def path_text(path: Path) -> str:
    """A path for a message: as it is, or quoted and escaped when it would not print as it is."""
    return _printable(str(path))


def cause(error: Exception) -> str:
    """What an error of the file system says, without the path."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _read(path: Path) -> bytes | Finding:
    """The file's bytes; only a regular file of bounded size is opened, for a FIFO would block start-up."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        return finding("TB009", f"{FILE_NAME} is a broken symbolic link -> {shown(str(path.readlink()), 256)}")
    if not stat.S_ISREG(mode):
        return finding("TB011", f"{FILE_NAME} is {_file_kind(mode)}, not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size <= MAX_BYTES:
            return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    return finding("TB106", f"{FILE_NAME} has {size} bytes; the limit is {MAX_BYTES}")


def _file_kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _printable(text: str) -> str:
    return text if text.isprintable() else shown(text, 512)
