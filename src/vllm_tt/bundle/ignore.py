"""The patterns of ``.bundleignore`` and ``--exclude``: those of ``.gitignore``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FILE_NAME", "BadPattern", "Pattern", "is_ignored", "patterns"]

FILE_NAME = ".bundleignore"


class BadPattern(ConfigError):
    """{pattern!r} is no pattern for files: it holds a range that runs backwards. Patterns are those of .gitignore."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """One line: what it matches, and whether that is ignored or, after ``!``, kept."""

    regex: re.Pattern[str]
    keeps: bool
    folders_only: bool


def patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """The patterns of the lines; blank ones and comments have none."""
    found = (_pattern(line) for line in lines)
    return tuple(one for one in found if one is not None)


def is_ignored(path: str, patterns: tuple[Pattern, ...], *, folder: bool) -> bool:
    """What the last pattern that matches ``path`` says; what lies in an ignored folder is not asked about."""
    for pattern in reversed(patterns):
        if (folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
            return not pattern.keeps
    return False


def _pattern(line: str) -> Pattern | None:
    text = line.rstrip("\n\r")
    if not text.endswith("\\ "):
        text = text.rstrip()
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text.removeprefix("!") if keeps else text
    text = text[1:] if text.startswith(("\\#", "\\!")) else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    regex = ("" if anchored else "(?:.*/)?") + "".join(map(_translated, _TOKENS.finditer(text)))
    try:
        return Pattern(regex=re.compile(regex, re.DOTALL), keeps=keeps, folders_only=folders_only)
    except re.error:
        raise BadPattern(pattern=line) from None


_TOKENS = re.compile(
    r"""
      (?P<into>(?:^|(?<=/))\*\*/)
    | (?P<below>/\*\*$)
    | (?P<stars>\*+)
    | (?P<one>\?)
    | \[(?P<negated>!?)(?P<set>\]?[^\]/]*)\]
    | \\(?P<escaped>.)
    | (?P<plain>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_REGEXES = {"into": "(?:.*/)?", "below": "/.*", "stars": "[^/]*", "one": "[^/]"}


def _translated(token: re.Match[str]) -> str:
    if token["set"]:
        members = re.sub(r"([\\\[\]^&|~])", r"\\\1", token["set"])
        return f"(?!/)[{'^' if token['negated'] else ''}{members}]"
    kind = token.lastgroup or ""
    return _REGEXES.get(kind) or re.escape(token[kind])
