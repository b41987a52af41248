"""Gzip for archives of bundles: the same bytes for the same contents, as fast as the contents allow.

The stream is cut into blocks. A block is deflated when a sample of it shrinks, until enough has been
deflated for any bundle's code; other blocks (weights do not shrink) are stored as they are, which costs
a copy. Reading is bounded in memory and in what comes out.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

from vllm_tt.bundle.findings import Finding, finding
from vllm_tt.bundle.paths import amount

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["MAGIC", "ArchiveRefused", "Compressor", "Expanded", "refused"]

MAGIC = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, an unknown system
_BLOCK = 1 << 20
_SAMPLE = 16 << 10
_DEFLATED = 4 << 20
_STORED = 0xFFFF  # the most that one stored block of the format holds
_MAX_RATIO = 200
_RATIO_FROM = 10 << 20
_PIECE = 64 << 10

_OTHERS = (
    (b"PK", "a zip file"),
    (b"\xfd7zXZ", "an xz stream"),
    (b"BZh", "a bzip2 stream"),
    (b"\x28\xb5\x2f\xfd", "a zstd stream"),
    (b"7z\xbc\xaf", "a 7z archive"),
)


class ArchiveRefused(Exception):
    """An archive that is not read on; the argument is the finding that says why."""

    @property
    def finding(self) -> Finding:
        found: Finding = self.args[0]
        return found


def refused(code: str, message: str, hint: str = "") -> ArchiveRefused:
    """The exception of a finding."""
    return ArchiveRefused(finding(code, message, hint=hint))


class Writable(Protocol):
    """What takes the compressed bytes."""

    def write(self, data: bytes, /) -> object: ...


class Compressor:
    """Writes one gzip stream to ``out``; ``close`` ends the stream and leaves ``out`` open."""

    def __init__(self, out: Writable) -> None:
        self._out = out
        self._block = memoryview(bytearray(_BLOCK))
        self._filled = 0
        self._crc = 0
        self._size = 0
        self._left_to_deflate = _DEFLATED
        out.write(MAGIC)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            taken = min(len(view), _BLOCK - self._filled)
            self._block[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            if self._filled == _BLOCK:
                self._flush()

    def close(self) -> None:
        self._flush()
        trailer = self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        self._out.write(b"\x01\x00\x00\xff\xff" + trailer)  # an empty block that is the last

    def _flush(self) -> None:
        block = self._block[: self._filled]
        self._crc = zlib.crc32(block, self._crc)
        self._size += len(block)
        self._out.write(self._packed(block))
        self._filled = 0

    def _packed(self, block: memoryview) -> bytes:
        if self._left_to_deflate >= len(block) and len(_deflated(block[:_SAMPLE])) < 0.9 * len(block[:_SAMPLE]):
            self._left_to_deflate -= len(block)
            deflated = _deflated(block)
            if len(block) / _MAX_RATIO < 0.5 * len(deflated) < 0.5 * len(block):  # far from what readers call a bomb
                return deflated
        parts: list[bytes | memoryview] = []
        for start in range(0, len(block), _STORED):
            piece = block[start : start + _STORED]
            length = len(piece)
            parts += (b"\0" + length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little"), piece)
        return b"".join(parts)


def _deflated(data: memoryview) -> bytes:
    """Raw deflate, ended at a byte and without the mark of the last block."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


class Expanded:
    """The contents of a gzip stream, at most ``limit`` bytes of them. Raises ArchiveRefused for anything else."""

    def __init__(self, source: BinaryIO, limit: int, *, slack: int = 0) -> None:
        self._source = source
        self._limit = limit
        self._slack = slack  # bytes on top of the limit that are not the files'
        self._raw = b""
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._ready = bytearray()
        self.taken = 0
        """Compressed bytes read."""
        self.given = 0
        """Bytes that came out of them."""

    def read(self, size: int) -> bytes:
        """``size`` bytes; fewer only at the end of the stream."""
        while len(self._ready) < size and not self._inflate.eof:
            self._inflate_piece()
        piece = bytes(self._ready[:size])
        del self._ready[:size]
        return piece

    def _inflate_piece(self) -> None:
        if not self._raw:
            self._raw = self._source.read(_PIECE)
            self._first(self._raw)
            self.taken += len(self._raw)
        try:
            piece = self._inflate.decompress(self._raw, _PIECE)
        except zlib.error as error:
            what = str(error).partition(": ")[2] or str(error)
            raise refused("TB906", f"not a bundle archive (corrupt gzip stream: {what})") from None
        self._raw = self._inflate.unconsumed_tail
        self.given += len(piece)
        self._ready += piece
        if self.given > self._limit + self._slack:
            raise refused("TB903", f"archive expands to more than {amount(self._limit)}", "--max-size raises it")
        if self.given > _RATIO_FROM and self.given > _MAX_RATIO * self.taken:
            raise refused("TB903", f"archive expands more than {_MAX_RATIO} times")
        if self._inflate.eof and (self._inflate.unused_data or self._source.read(1)):
            raise refused("TB906", "not a bundle archive (data after the end of the gzip stream)")

    def _first(self, raw: bytes) -> None:
        if not raw:
            what = "truncated gzip stream" if self.taken else "the file is empty"
            raise refused("TB906", f"not a bundle archive ({what})")
        if not self.taken and not raw.startswith(MAGIC[:2]):
            what = next((name for magic, name in _OTHERS if raw.startswith(magic)), "not gzip")
            raise refused("TB906", f"not a bundle archive ({what}; expected a gzip-compressed tar)")
