"""From the bytes of a metadata file to a JSON object, or to findings that say where it goes wrong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.findings import Finding, Severity, finding, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_BYTES", "JsonText", "kind", "load", "located"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 64

_KINDS = {dict: "object", list: "list", str: "string", bool: "boolean", int: "int", float: "number", type(None): "null"}
_NAMES = (("arch",), ("main_class",))
"""What must be an identifier, so that the parser refuses these characters there."""
# C0 and C1 controls, surrogates, and the characters that reorder or hide text.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonText:
    """A parsed file: ``root`` is None when it holds no JSON object."""

    text: str
    root: dict[str, Any] | None
    findings: tuple[Finding, ...]


def kind(value: object) -> str:
    """The JSON name of a value's type."""
    return _KINDS.get(type(value), type(value).__name__)


def load(data: bytes) -> JsonText:
    """Parse a metadata file. Never raises."""
    if len(data) > MAX_BYTES:
        return _refused("", finding("TB106", f"{len(data)} bytes; the limit is {MAX_BYTES}"))
    findings = []
    if data.startswith(b"\xef\xbb\xbf"):
        findings.append(finding("TB102", "starts with a byte-order mark; other readers reject it"))
        data = data[3:]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "the file looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        message = f"not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start})"
        return _refused("", finding("TB103", message, hint=hint))
    hooks = _Hooks()
    try:
        root = hooks.decoder().decode(text)
    except json.JSONDecodeError as error:
        return _refused(text, _syntax(text, error))
    except RecursionError:
        return _refused(text, finding("TB107", "nested too deeply"))
    if not isinstance(root, dict):
        return _refused(text, finding("TB105", f"must be a JSON object, got {_article(kind(root))}"))
    findings += hooks.findings
    if hooks.duplicates:
        findings += _duplicates(text)
    for depth, key, value in _walk(root):
        if depth > MAX_DEPTH:
            return _refused(text, finding("TB107", "nested too deeply"))
        if isinstance(value, str) and (bad := _UNPRINTABLE.search(value)):
            where = shown(".".join(key))
            fault = finding("TB109", f"{where} holds the character U+{ord(bad[0]):04X}", key=key)
            findings.append(fault.graded(Severity.ERROR) if key in _NAMES else fault)
    return JsonText(text=text, root=root, findings=tuple(findings))


def located(findings: tuple[Finding, ...], text: str) -> tuple[Finding, ...]:
    """``findings`` with line and column of the key that each names, where the text has it."""
    if not any(found.key and found.line is None for found in findings):
        return findings
    places = _places(text)
    result = []
    for found in findings:
        if found.line is None and (spots := places.get(found.key)):
            line, column = _line_column(text, spots[-1])
            found = replace(found, line=line, column=column)  # noqa: PLW2901
        result.append(found)
    return tuple(result)


class _Hooks:
    """The decoder's callbacks, which see what ``json`` would pass over in silence."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.duplicates = False

    def decoder(self) -> json.JSONDecoder:
        return json.JSONDecoder(object_pairs_hook=self._pairs, parse_constant=self._constant, parse_int=self._integer)

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        self.duplicates |= len(result) < len(pairs)
        return result

    def _constant(self, name: str) -> float:
        self.findings.append(finding("TB108", f"{name} is not JSON"))
        return float(name)

    def _integer(self, digits: str) -> int | float:
        try:
            return int(digits)
        except ValueError:  # longer than the interpreter converts
            self.findings.append(finding("TB108", f"an integer of {len(digits)} digits"))
            return float("inf")


def _duplicates(text: str) -> Iterator[Finding]:
    for path, spots in _places(text).items():
        if len(spots) > 1:
            lines = " and ".join(str(_line_column(text, spot)[0]) for spot in spots)
            yield finding("TB104", f"duplicate key {shown(path[-1])} (lines {lines}); the last one counts", key=path)


def _refused(text: str, found: Finding) -> JsonText:
    return JsonText(text=text, root=None, findings=(found,))


def _article(name: str) -> str:
    return name if name == "null" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _syntax(text: str, error: json.JSONDecodeError) -> Finding:
    position, what = error.pos, (error.msg[0].lower() + error.msg[1:]).removesuffix(" starting at")
    before = text[:position].rstrip()
    if not text.strip():
        position, what = 0, "the file is empty"
    elif text[position : position + 1] in ("}", "]") and before.endswith(","):
        position, what = len(before) - 1, "trailing comma"
    elif what.startswith("illegal trailing comma"):
        what = "trailing comma"
    elif text.startswith(("//", "/*", "#"), position):
        what = "comments are not allowed"
    elif text[position : position + 1] == "'":
        what = "strings need double quotes"
    line, column = _line_column(text, position)
    return replace(finding("TB101", f"not valid JSON: {what}"), line=line, column=column)


def _line_column(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _walk(root: dict[str, Any]) -> Iterator[tuple[int, tuple[str, ...], object]]:
    """Every value with its depth and path; iterative, so that depth costs no stack."""
    pending: list[tuple[int, tuple[str, ...], Any]] = [(1, (), root)]
    while pending:
        depth, key, value = pending.pop()
        yield depth, key, value
        if depth > MAX_DEPTH:
            return
        if isinstance(value, dict):
            pending += [(depth + 1, (*key, name), item) for name, item in value.items()]
        elif isinstance(value, list):
            pending += [(depth + 1, (*key, str(index)), item) for index, item in enumerate(value)]


def _places(text: str) -> dict[tuple[str, ...], list[int]]:
    """The offsets of every key of a valid JSON text, by path."""
    places: dict[tuple[str, ...], list[int]] = {}
    path: list[str | int] = []  # one entry per open container: its current key or index
    expects_key = False
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            path.append("")
            expects_key = True
        elif mark == "[":
            path.append(0)
            expects_key = False
        elif mark in "}]":
            path.pop()
            expects_key = False
        elif mark == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
            else:
                expects_key = True
        elif mark != ":" and expects_key:
            path[-1] = json.loads(mark)
            places.setdefault(tuple(map(str, path)), []).append(token.start())
            expects_key = False
    return places
