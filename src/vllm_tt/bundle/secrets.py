"""Recognises secrets by the names of files and by their contents. Never hands a secret on: only its kind and line."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_SCANNED", "named_like_a_secret", "redacted", "secrets_in"]

MAX_SCANNED = 1 << 20
"""Bytes: larger files are not looked into."""

_NAMES = (
    ".env*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc",
    ".npmrc", ".pypirc", ".git-credentials", ".dockercfg", "credentials*", "token", "kubeconfig",
)  # fmt: skip
_NAME = re.compile("|".join(map(fnmatch.translate, _NAMES)))
_FOLDERS = frozenset({".huggingface", ".aws", ".ssh", ".kube", ".docker", ".gnupg"})

_PRIVATE_KEY = b"PRIVATE KEY"
_CONTENTS: tuple[tuple[str, bytes, re.Pattern[bytes]], ...] = tuple(
    (kind, needle, re.compile(pattern))
    for kind, needle, pattern in (
        ("a Hugging Face token", b"hf_", rb"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
        ("a GitHub token", b"gh", rb"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
        ("a GitLab token", b"glpat-", rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}"),
        ("an AWS access key", b"IA", rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("a Google API key", b"AIza", rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}"),
        ("a private key", _PRIVATE_KEY, rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"),
        ("a Slack token", b"xox", rb"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{16,}"),
        ("an API key", b"sk-", rb"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{20,}"),
        ("a package index token", b"pypi-", rb"(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{50,}"),
        ("an npm token", b"npm_", rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}"),
    )
)
"""Kind, a text that such a secret holds (it is found much faster than the pattern), and the pattern."""

_RUN = b"x" * 20
_CLASSES = bytes(
    ord("x") if chr(byte).isascii() and (chr(byte).isalnum() or byte in b"-_") else 0 for byte in range(256)
)
"""Every secret but a private key holds so long a run of letters, digits and dashes, which is found faster yet."""


def named_like_a_secret(path: str) -> bool:
    """Whether a file at this path of the bundle has a name under which secrets are kept."""
    *folders, name = path.lower().split("/")
    return not _FOLDERS.isdisjoint(folders) or _NAME.fullmatch(name) is not None


def secrets_in(data: bytes) -> Iterator[tuple[int, str]]:
    """The line and kind of each secret in a text; none in what is not text."""
    if b"\0" in data[:8192] or not (_RUN in data.translate(_CLASSES) or _PRIVATE_KEY in data):
        return
    found: list[tuple[int, str]] = []
    for kind, needle, pattern in _CONTENTS:
        if needle in data:
            found += [(match.start(), kind) for match in pattern.finditer(data)]
    for start, kind in sorted(found):
        yield data.count(b"\n", 0, start) + 1, kind


def redacted(text: str) -> str:
    """``text`` with the secrets in it replaced by their kind."""
    data = text.encode("utf-8", "surrogatepass")
    for kind, needle, pattern in _CONTENTS:
        if needle in data:
            whole = pattern if kind != "a private key" else re.compile(pattern.pattern + rb".*", re.DOTALL)
            data = whole.sub(f"<{kind}>".encode(), data)
    return data.decode("utf-8", "surrogatepass")
