"""``bundle.lock.json``: size and digest of every file of a bundle, generated when it is packed, never authored."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from vllm_tt._version import __version__
from vllm_tt.bundle.files import LOCK_NAME, is_junk
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.paths import path_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from vllm_tt.bundle.files import Selection
    from vllm_tt.bundle.metadata import Metadata

__all__ = [
    "LOCK_NAME",
    "LOCK_VERSION",
    "MAX_BYTES",
    "Lock",
    "LockedFile",
    "compare",
    "digested",
    "folder_contents",
    "lock_of",
    "make",
    "missing",
    "parse",
    "read",
    "verify",
]

LOCK_VERSION = 1
MAX_BYTES = 8 << 20
_CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEYS = {"lock_version", "name", "version", "created_by", "files", "tree_sha256"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedFile:
    """One file: its path in the bundle, bytes, and digest in hexadecimal."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """The lock of one bundle: nothing of the time, the machine or the folder it was made in."""

    name: str | None = None
    version: str | None = None
    created_by: str = f"vllm-tt {__version__}"
    files: tuple[LockedFile, ...] = ()
    """In the order of the paths' UTF-8 bytes."""

    @property
    def tree_sha256(self) -> str:
        """One digest for all contents: over a line ``sha256  path`` for each file."""
        lines = "".join(f"{file.sha256}  {file.path}\n" for file in self.files)
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()

    def to_bytes(self) -> bytes:
        """The lock file."""
        texts = {"name": self.name, "version": self.version, "created_by": self.created_by}
        lines = [f'  "{key}": {_json(value)}' for key, value in {"lock_version": LOCK_VERSION, **texts}.items()]
        files = ",".join(
            f'\n    {{"path": {_json(file.path)}, "size": {file.size}, "sha256": "{file.sha256}"}}'
            for file in self.files
        )
        lines += [f'  "files": [{files}\n  ]', f'  "tree_sha256": "{self.tree_sha256}"']
        return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8")


def lock_of(metadata: Metadata | None, files: Iterable[LockedFile]) -> Lock:
    """The lock of files whose digests are known."""
    ordered = tuple(sorted(files, key=lambda file: file.path.encode("utf-8")))
    return Lock(name=metadata.name if metadata else None, version=metadata.version if metadata else None, files=ordered)


def make(selection: Selection, progress: Callable[[int], object] | None = None) -> Lock:
    """Read every selected file; ``progress`` is told the bytes of each piece. Raises files.Changed, OSError."""
    files = []
    for file in selection.files:
        with file.open() as opened:
            digest = digested(opened, progress)
        files.append(LockedFile(path=file.path, size=file.size, sha256=digest))
    return lock_of(selection.metadata, files)


def digested(file: BinaryIO, progress: Callable[[int], object] | None = None) -> str:
    """The SHA-256 of what is left in a file, read in pieces."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    while read := file.readinto(buffer):  # type: ignore[attr-defined]  # of every binary file
        digest.update(buffer[:read])
        if progress:
            progress(read)
    return digest.hexdigest()


def parse(data: bytes) -> Lock | Finding:
    """The lock that a file holds, or what is wrong with it. Never raises."""
    if len(data) > MAX_BYTES:
        return _fault(f"has {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        root = json.loads(data.decode("utf-8"), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        return _fault("has a key twice" if isinstance(error, _Twice) else "is not valid JSON")
    if not isinstance(root, dict) or not root.keys() >= _KEYS:
        return _fault("is not a lock: it lacks keys of one")
    if root["lock_version"] != LOCK_VERSION or isinstance(root["lock_version"], bool):
        return _fault(f"has lock_version {shown(root['lock_version'])}; this tool knows {LOCK_VERSION}")
    if not isinstance(root["files"], list) or not all(map(_is_entry, root["files"])):
        return _fault("lists something that is not a file with path, size and sha256")
    files = tuple(LockedFile(path=one["path"], size=one["size"], sha256=one["sha256"]) for one in root["files"])
    if fault := _listing_fault(files):
        return fault
    texts = {key: root[key] for key in ("name", "version", "created_by")}
    if not all(isinstance(value, str) or (value is None and key != "created_by") for key, value in texts.items()):
        return _fault("has a name, version or created_by that is not text")
    lock = Lock(**texts, files=files)
    return (
        lock if lock.tree_sha256 == root["tree_sha256"] else _fault("has a tree_sha256 that is not that of its files")
    )


def compare(lock: Lock, contents: Mapping[str, LockedFile], *, strict: bool = False) -> tuple[Finding, ...]:
    """What differs between a lock and the files that are there.

    Other tools write the metadata file anew, so that one's digest is a warning unless ``strict``.
    """
    findings = []
    for file in lock.files:
        found = contents.get(file.path)
        if found is None:
            findings.append(finding("TB908", f"{shown(file.path)} is missing; {LOCK_NAME} lists it"))
        elif found != file:
            one = finding("TB907", f"{shown(file.path)} differs from {LOCK_NAME}")
            if file.path == FILE_NAME and not strict:
                one = replace(one, severity=Severity.WARNING, hint="another tool may have written it anew")
            findings.append(one)
    listed = {file.path for file in lock.files}
    findings += [_unlisted(path) for path in sorted(contents.keys() - listed)]
    return tuple(findings)


def verify(
    folder: Path, *, require_lock: bool = False, strict: bool = False, in_use: bool = True
) -> tuple[Finding, ...]:
    """Check a folder against its lock: every listed file as listed, and no other file.

    ``in_use`` forgives what appears in a folder that is worked in or served from: version control, caches
    of tools, and the compiled form of listed modules. Raises OSError when a file cannot be read.
    """
    lock = read(folder)
    if not isinstance(lock, Lock):
        return (lock or missing(required=require_lock),)
    contents, others = folder_contents(folder, in_use=in_use)
    return (*compare(lock, contents, strict=strict), *map(_unlisted, others))


def read(folder: Path) -> Lock | Finding | None:
    """The lock in a folder, what is wrong with it, or None without one. Raises OSError when it cannot be read."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return _fault("is not a regular file")
    with open(descriptor, "rb") as file:  # noqa: PTH123
        return parse(file.read(MAX_BYTES + 1))


def missing(*, required: bool) -> Finding:
    """The finding of a bundle without a lock."""
    found = finding("TB911", f"no {LOCK_NAME}: contents not verified")
    return replace(found, severity=Severity.ERROR) if required else found


def folder_contents(folder: Path, *, in_use: bool = True) -> tuple[dict[str, LockedFile], list[str]]:
    """Size and digest of every file in a folder but the lock, and the paths that are neither file nor folder."""
    contents: dict[str, LockedFile] = {}
    others: list[str] = []
    for path, mode in _entries(folder, "", in_use):
        if not stat.S_ISREG(mode):
            others.append(path)
            continue
        descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
            size = os.fstat(descriptor).st_size
            contents[path] = LockedFile(path=path, size=size, sha256=digested(file))
    return contents, others


def _entries(root: Path, prefix: str, in_use: bool) -> Iterator[tuple[str, int]]:
    pending = [prefix]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        names = {entry.name for entry in entries}
        for entry in entries:
            path = prefix + entry.name
            if path == LOCK_NAME or (in_use and entry.name.startswith(".") and is_junk(entry.name)):
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False).st_mode
            elif in_use and entry.name == "__pycache__":
                yield from _strangers(root / path, path + "/", names)
            else:
                pending.append(path + "/")


def _strangers(cache: Path, prefix: str, modules: set[str]) -> Iterator[tuple[str, int]]:
    """What lies in a cache of compiled modules and is not the compiled form of a module beside it."""
    with os.scandir(cache) as entries:
        for entry in entries:
            compiled = entry.name.endswith(".pyc") and entry.is_file(follow_symlinks=False)
            if not (compiled and entry.name.partition(".")[0] + ".py" in modules):
                yield prefix + entry.name, entry.stat(follow_symlinks=False).st_mode


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"path", "size", "sha256"}
        and isinstance(value["path"], str)
        and type(value["size"]) is int
        and value["size"] >= 0
        and isinstance(value["sha256"], str)
        and _DIGEST.fullmatch(value["sha256"]) is not None
    )


def _listing_fault(files: tuple[LockedFile, ...]) -> Finding | None:
    paths = [file.path for file in files]
    for path in paths:
        if fault := path_fault(path):
            return _fault(f"lists {shown(path)}, which {fault}")
    if LOCK_NAME in paths:
        return _fault("lists itself")
    ordered = sorted(set(paths), key=lambda path: path.encode("utf-8"))
    return None if paths == ordered else _fault("lists a file twice, or not in order")


def _unlisted(path: str) -> Finding:
    return finding("TB909", f"{shown(path)} is not in {LOCK_NAME}")


def _fault(what: str) -> Finding:
    return finding("TB910", f"{LOCK_NAME} {what}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Twice(ValueError):
    """An object has a key twice."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _Twice
    return result
