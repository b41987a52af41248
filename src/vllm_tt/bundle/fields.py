"""Small readers for the optional fields: each takes a JSON value and yields what the record holds.

A value of the wrong shape is dropped with a finding; the rest of the record stays.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.findings import Finding, Reader, finding, shown

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    Read = Callable[[Any, tuple[str, ...], list[Finding]], Any]
    """From a value, its path and the list that takes findings, to the value of the record."""

__all__ = [
    "each",
    "environment",
    "identifier",
    "ignored",
    "integer",
    "mapping",
    "optional",
    "read",
    "record",
    "rule",
    "text",
    "texts",
    "words",
]


class _Wrong(Exception):  # never leaves this module
    """The value is not what the field takes; the argument completes "must be ..."."""


def ignored(_value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> Any:
    """For keys that are read elsewhere."""
    return _ABSENT


def read(
    table: Mapping[str, Read], raw: Mapping[str, Any], findings: list[Finding], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The good values of ``raw`` by key; unknown keys and wrong values become findings."""
    values: dict[str, Any] = {}
    for key, value in raw.items():
        here = (*path, key)
        reader = table.get(key)
        if reader is None:
            if not key.startswith("x-"):
                findings.append(
                    finding("TB210", f"unknown key {_dotted(here)}", hint=_suggest(key, tuple(table)), key=here)
                )
            continue
        try:
            result = reader(value, here, findings)
        except _Wrong as wrong:
            message = f"{_dotted(here)} must be {wrong}, got {_got(value)}; ignored"
            findings.append(finding("TB202", message, reader=Reader.QUIET, key=here))
            continue
        if result is not _ABSENT:
            values[key] = result
    return values


def text(limit: int = 512, *, empty: bool = False) -> Read:
    """A string of at most ``limit`` characters."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> str:
        if not isinstance(value, str) or len(value) > limit or not (value or empty):
            raise _Wrong(f"a {'' if empty else 'non-empty '}string of at most {limit} characters")
        return value

    return reader


def identifier(pattern: re.Pattern[str], what: str) -> Read:
    """A string that ``pattern`` matches as a whole; ``what`` says so in words."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _Wrong(what)
        return value

    return reader


def integer(minimum: int) -> Read:
    """A whole number from ``minimum``; a boolean is none."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> int:
        if type(value) is not int or value < minimum:
            raise _Wrong(f"an integer of at least {minimum}")
        return value

    return reader


def texts(limit: int = 1024, *, each: int) -> Read:
    """A list of distinct strings."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> tuple[str, ...]:
        good = isinstance(value, list) and len(value) <= limit
        if not good or not all(isinstance(item, str) and 0 < len(item) <= each for item in value):
            raise _Wrong("a list of strings")
        return tuple(dict.fromkeys(value))

    return reader


def words(limit: int) -> Read:
    """A non-empty list of scalars, as strings: a command line."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> tuple[str, ...]:
        good = isinstance(value, list) and 0 < len(value) <= limit
        if not good or not all(isinstance(item, (str, int, float)) for item in value):
            raise _Wrong("a non-empty list")
        return tuple(map(_scalar, value))

    return reader


def environment() -> Read:
    """An object of scalars: environment variables, null to leave one unset."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> Mapping[str, str | None]:
        if value is None:
            return {}
        if not isinstance(value, dict) or any(isinstance(item, (dict, list)) for item in value.values()):
            raise _Wrong("an object of strings")
        return {key: None if item is None else _scalar(item) for key, item in value.items()}

    return reader


def mapping() -> Read:
    """Any object, as it is."""

    def reader(value: Any, _path: tuple[str, ...], _findings: list[Finding]) -> Mapping[str, Any]:
        return dict(_object(value))

    return reader


def optional(inner: Read) -> Read:
    """``inner``, or null for an absent value."""

    def reader(value: Any, path: tuple[str, ...], findings: list[Finding]) -> Any:
        return _ABSENT if value is None else inner(value, path, findings)

    return reader


def record(cls: type, table: Mapping[str, Read], needed: tuple[str, ...] = ()) -> Read:
    """An object read into ``cls``; without the ``needed`` fields it is dropped."""

    def reader(value: Any, path: tuple[str, ...], findings: list[Finding]) -> Any:
        raw = _object(value)
        for key in needed:
            if key not in raw:
                raise _Wrong(f"an object with {key!r}")
        values = read(table, raw, findings, path)
        if not all(key in values for key in needed):
            return _ABSENT
        return cls(**{key.replace("-", "_"): item for key, item in values.items()})

    return reader


def each(inner: Read, limit: int = 256) -> Read:
    """An object whose values are all read by ``inner``."""

    def reader(value: Any, path: tuple[str, ...], findings: list[Finding]) -> Mapping[str, Any]:
        raw = _object(value)
        if len(raw) > limit:
            raise _Wrong(f"an object of at most {limit} entries")
        return read(dict.fromkeys(raw, inner), raw, findings, path)

    return reader


def rule(code: str, inner: Read) -> Read:
    """``inner``, with its faults reported under ``code``."""

    def reader(value: Any, path: tuple[str, ...], findings: list[Finding]) -> Any:
        inside: list[Finding] = []
        try:
            result = inner(value, path, inside)
        except _Wrong as wrong:
            inside.append(finding("TB202", f"{_dotted(path)} must be {wrong}, got {_got(value)}; ignored", key=path))
            result = _ABSENT
        for found in inside:
            recoded = finding(code, found.message, hint=found.hint, key=found.key)
            findings.append(recoded if found.code == "TB202" else found)
        return result

    return reader


_ABSENT = object()


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong("an object")
    return value


def _scalar(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _got(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return "an object" if isinstance(value, dict) else shown(value, 40)


def _dotted(path: tuple[str, ...]) -> str:
    return shown(".".join(path))


@lru_cache(maxsize=1024)
def _suggest(key: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
