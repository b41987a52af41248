"""Tar headers of bundles: written always the same, read with suspicion.

The reader knows regular files and folders alone, takes every size for a claim, and holds no more of the
archive than one block and one path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vllm_tt.bundle.compression import refused
from vllm_tt.bundle.findings import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["END", "Member", "Readable", "header", "members", "padding"]

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_MEMBERS = 10_000
_MAX_NAME = 100
_MAX_OCTAL = 0o77777777777
_PIECE = 1 << 18
_MAX_RECORD = 16 << 10
_MAX_RECORDS = 16 << 20
_RECORD = re.compile(rb"(\d{1,5}) ([^=\n]{1,255})=")

_REFUSED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"K": "a link with a long target",
}


class Readable(Protocol):
    """Where the bytes of an archive come from."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file or folder of an archive, as its header has it: nothing of it has been checked."""

    path: str
    size: int
    executable: bool
    folder: bool


@dataclass(slots=True)
class _Extension:
    """What records before a member say about it."""

    path: bytes | None = None
    size: int | None = None


def header(path: str, size: int, *, executable: bool) -> bytes:
    """The header of a file: nothing of its owner, time and folder."""
    name = path.encode("utf-8")
    records = b""
    if len(name) > _MAX_NAME or not path.isascii():
        records += _record("path", path)
    if size > _MAX_OCTAL:
        records += _record("size", str(size))
    block = _block(name[:_MAX_NAME], min(size, _MAX_OCTAL), b"0", 0o755 if executable else 0o644)
    if not records:
        return block
    return _block(b"././@PaxHeader", len(records), b"x", 0o644) + records + padding(len(records)) + block


def _block(name: bytes, size: int, kind: bytes, mode: int) -> bytes:
    head = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(_MAX_NAME, b"\0"), mode, 0, 0, size, 0)
    tail = kind + bytes(100) + b"ustar\x0000"
    checksum = sum(head) + sum(tail) + 8 * ord(" ")
    return (head + b"%06o\0 " % checksum + tail).ljust(BLOCK, b"\0")


def _record(key: str, value: str) -> bytes:
    """``length key=value``, the length with its own digits."""
    rest = f" {key}={value}\n".encode()
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def padding(size: int) -> bytes:
    """What fills up the last block of a file."""
    return bytes(-size % BLOCK)


def members(source: Readable) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """Every member with the pieces of its contents, which must be read before the next. Raises ArchiveRefused."""
    extension = _Extension()
    headers = records = 0
    while (block := _exactly(source, BLOCK)) != bytes(BLOCK):
        headers += 1
        if headers > 2 * MAX_MEMBERS:
            raise refused("TB903", f"archive has more than {MAX_MEMBERS} members")
        kind, size = _kind(block), _number(block[124:136])
        if kind in (b"x", b"g", b"L"):
            records += size
            if size > _MAX_RECORD or records > _MAX_RECORDS:
                raise refused("TB903", "archive has headers that are too large")
            _extend(extension, kind, b"".join(_contents(source, size)))
            continue
        member = _member(block, kind, size, extension)
        extension = _Extension()
        contents = _contents(source, member.size)
        yield member, contents
        for _ in contents:
            pass
    while rest := source.read(_PIECE):
        if rest.strip(b"\0"):
            raise refused("TB906", "not a bundle archive (data after the end of the tar)")


def _member(block: bytes, kind: bytes, size: int, extension: _Extension) -> Member:
    raw = extension.path if extension.path is not None else _name(block)
    try:
        path = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refused("TB901", f"unsafe path in archive: {shown(raw)} is not UTF-8") from None
    if kind not in (b"0", b"\0", b"5"):
        what = _REFUSED_KINDS.get(kind, f"of the unknown kind {shown(kind.decode('latin-1'))}")
        raise refused("TB902", f"{shown(path)} is {what}; an archive of a bundle holds files alone")
    folder = kind == b"5" or path.endswith("/")
    size = size if extension.size is None else extension.size
    if folder and size:
        raise refused("TB906", f"not a bundle archive (the folder {shown(path)} has contents)")
    executable = bool(_number(block[100:108]) & 0o100)
    return Member(path=path.removesuffix("/") if folder else path, size=size, executable=executable, folder=folder)


def _contents(source: Readable, size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = source.read(min(left, _PIECE))
        if not piece:
            raise _truncated()
        left -= len(piece)
        yield piece
    _exactly(source, -size % BLOCK)


def _exactly(source: Readable, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise _truncated()
    return data


def _kind(block: bytes) -> bytes:
    claimed = _number(block[148:156])
    if claimed != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise _corrupt()
    return block[156:157]


def _number(field: bytes) -> int:
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
        if value >= 1 << 63:
            raise _corrupt()
        return value
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise _corrupt()
    return int(digits or b"0", 8)


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _extend(extension: _Extension, kind: bytes, data: bytes) -> None:
    if kind == b"L":
        extension.path = data.partition(b"\0")[0]
        return
    for key, value in _records(data):
        if kind == b"g" and key in (b"path", b"size", b"linkpath"):
            raise refused("TB902", f"archive sets {shown(key.decode())} for all members")
        if key.startswith(b"GNU.sparse"):
            raise refused("TB902", "archive holds a sparse file; an archive of a bundle holds plain files alone")
        if key == b"path":
            extension.path = value
        elif key == b"size":
            if not re.fullmatch(rb"[0-9]{1,18}", value):
                raise _corrupt()
            extension.size = int(value)


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The ``length key=value`` records of an extended header."""
    start = 0
    while start < len(data):
        match = _RECORD.match(data, start)
        end = start + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise _corrupt()
        yield match[2], data[match.end() : end - 1]
        start = end


def _corrupt() -> Exception:
    return refused("TB906", "not a bundle archive (corrupt tar header)")


def _truncated() -> Exception:
    return refused("TB906", "not a bundle archive (truncated tar)")
