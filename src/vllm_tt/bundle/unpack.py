"""Takes bundles out of archives, and verifies archives and folders against their locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from vllm_tt.bundle import archive, lock, metadata, reading
from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.files import MAX_SIZE
from vllm_tt.bundle.findings import Finding, Reader, Severity, shown
from vllm_tt.bundle.install import install, staging
from vllm_tt.bundle.pack import SUFFIX
from vllm_tt.bundle.paths import path_fault
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["BadName", "Checked", "Demands", "Unpacked", "unpack", "verify_archive", "verify_folder"]


class BadName(ConfigError):
    """{name} cannot be the name of a bundle's folder: it {fault}. Choose another one with --name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demands:
    """How much is asked of a bundle."""

    require_lock: bool = False
    strict: bool = False
    """A metadata file that another tool wrote anew is an error too."""
    max_size: int = MAX_SIZE
    """Bytes in all that an archive may expand to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The result of verifying: good when no finding is an error."""

    findings: tuple[Finding, ...]
    metadata: Metadata | None = None
    lock: lock.Lock | None = None
    """None when there is no lock that can be read."""
    files: int = 0
    size: int = 0
    """Bytes of all files but the lock; for a folder, those that the lock lists."""

    @property
    def good(self) -> bool:
        return not any(found.severity is Severity.ERROR for found in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """The result of unpacking."""

    checked: Checked
    folder: Path | None
    """Where the bundle is now; None when it was refused, and nothing was written."""


def verify_archive(source: BinaryIO, demands: Demands) -> Checked:
    """Check an archive to its last byte; writes nothing."""
    try:
        return _checked(archive.read(source, max_size=demands.max_size), demands)
    except ArchiveRefused as error:
        return Checked(findings=(error.finding,))


def verify_folder(folder: Path, demands: Demands) -> Checked:
    """Check a folder, in use or not, against its lock. Raises OSError when it cannot be read."""
    loaded = reading.load(folder)
    faults = () if isinstance(loaded, reading.Bundle) else (loaded.finding,)
    found = lock.verify(folder, require_lock=demands.require_lock, strict=demands.strict)
    known = lock.read(folder)
    known = known if isinstance(known, lock.Lock) else None
    return Checked(
        findings=(*faults, *found),
        metadata=loaded.metadata if isinstance(loaded, reading.Bundle) else None,
        lock=known,
        files=len(known.files) if known else 0,
        size=sum(file.size for file in known.files) if known else 0,
    )


def unpack(
    source: BinaryIO, into: Path, demands: Demands, *, name: str | None = None, stem: str = "", force: bool = False
) -> Unpacked:
    """Put the bundle of an archive into the folder ``into``, under ``name`` or else a name of its own.

    ``stem`` is the archive's file name: what a bundle is called that has no name in its metadata.
    Raises BadName, DestinationExists and OSError; whatever happens, nothing half is left.
    """
    if name is not None and (fault := _name_fault(name)):
        raise BadName(name=shown(name), fault=fault)
    with staging(into / (name or "bundle")) as new:
        try:
            contents = archive.read(source, new, max_size=demands.max_size)
        except ArchiveRefused as error:
            return Unpacked(checked=Checked(findings=(error.finding,)), folder=None)
        checked = _checked(contents, demands)
        if not checked.good:
            return Unpacked(checked=checked, folder=None)
        place = into / (name or _own_name(checked.metadata, stem, contents.top))
        install(new / contents.top, place, force=force)
    return Unpacked(checked=checked, folder=place)


def _checked(contents: archive.Contents, demands: Demands) -> Checked:
    parsed = metadata.parse(contents.metadata)
    findings = [found for found in parsed.findings if found.reader is Reader.SKIP]
    known = lock.missing(required=demands.require_lock) if contents.lock is None else lock.parse(contents.lock)
    if isinstance(known, Finding):
        findings.append(known)
    else:
        findings += lock.compare(known, contents.files, strict=demands.strict)
    return Checked(
        findings=tuple(findings),
        metadata=parsed.metadata,
        lock=None if isinstance(known, Finding) else known,
        files=len(contents.files),
        size=sum(file.size for file in contents.files.values()),
    )


def _own_name(found: Metadata | None, stem: str, top: str) -> str:
    """The metadata's name, else what the archive's file is called, else its folder."""
    version = f"-{found.version}" if found and found.version else ""
    bare = stem.removesuffix(SUFFIX).removesuffix(".tgz")
    candidates = (found.name if found else None, bare.removesuffix(version), top, archive.folder_name(found))
    return next(one for one in candidates if one and _name_fault(one) is None)


def _name_fault(name: str) -> str | None:
    if not name or "/" in name:
        return "is not one name"
    return "starts with a dot" if name.startswith(".") else path_fault(name)
