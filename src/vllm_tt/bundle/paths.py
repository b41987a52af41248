"""What the paths inside a bundle may be: names that every system, archive and lock file can hold."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MAX_PATH", "amount", "folded", "is_reserved", "path_fault"]

MAX_PATH = 1024
"""Bytes of a path inside a bundle."""
_MAX_NAME = 255
_MAX_DEPTH = 32
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?|.*[. ]", re.IGNORECASE | re.DOTALL)


def path_fault(path: str) -> str | None:
    """Why ``path`` cannot be the place of a file inside a bundle; None when it can."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if _CONTROL.search(path):
        return "holds a control character"
    if "\\" in path:
        return "holds a backslash"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if path.count("/") >= _MAX_DEPTH:
        return f"has more than {_MAX_DEPTH} parts"
    if len(encoded) > _MAX_NAME and (len(encoded) > MAX_PATH or max(map(len, encoded.split(b"/"))) > _MAX_NAME):
        return "is too long"
    return None


def folded(path: str) -> str:
    """What two paths share that some file systems hold for the same: case and Unicode form do not count."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def is_reserved(path: str) -> bool:
    """Whether a part of ``path`` is a name that Windows keeps for itself."""
    return any(_RESERVED.fullmatch(part) for part in path.split("/"))


def amount(size: int) -> str:
    """Bytes for people: ``512 MiB``, ``4.7 GB``, ``12 bytes``."""
    if size >= 1 << 20 and not size % (1 << 20):
        return f"{size >> 20} MiB"
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} byte{'' if size == 1 else 's'}"
