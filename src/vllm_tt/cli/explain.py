"""``tt-bundle explain``: what a code means and what to do about it."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.explain import EXPLANATIONS, nearest_codes
from vllm_tt.bundle.findings import RULES, Reader
from vllm_tt.cli.report import answer, columns, json_option
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UnknownCode", "command"]

_READER = {
    Reader.SKIP: "the bundle is not registered",
    Reader.WARN: "the bundle is registered, with a warning",
    Reader.INFO: "said in the log at level INFO",
    Reader.QUIET: "not looked at, or not said",
}


class UnknownCode(ConfigError):
    """{code!r} is not a code of tt-bundle.{near} 'tt-bundle explain' lists them all."""


@click.command("explain")
@click.argument("codes", nargs=-1, metavar="[TBnnn]...")
@json_option
def command(codes: tuple[str, ...]) -> None:
    """Say what a code means, with an example and what to do; without a code, list all."""
    if not codes:
        rows = [[code, rule.severity.value, rule.title] for code, rule in RULES.items()]
        answer(columns(rows), {"codes": [_record(code) for code in RULES]})
        return
    asked = [code.upper() for code in codes]
    for code in asked:
        if code not in RULES:
            close = nearest_codes(code)
            raise UnknownCode(code=code, near=f" Did you mean {' or '.join(close)}?" if close else "")
    answer(_lines(asked), {"codes": [_record(code) for code in asked]})


def _lines(codes: list[str]) -> Iterator[str]:
    for number, code in enumerate(codes):
        rule, one = RULES[code], EXPLANATIONS[code]
        if number:
            yield ""
        yield f"{code}: {rule.title} ({rule.severity.value})"
        parts = (("Cause", one.cause), ("Example", one.example), ("Fix", one.fix))
        for name, text in (*parts, ("Serving", f"{_READER[rule.reader]}.")):
            yield from textwrap.wrap(
                text, 100, initial_indent=f"  {name + ':':9}", subsequent_indent=" " * 11, break_long_words=False
            )


def _record(code: str) -> dict[str, Any]:
    rule = RULES[code]
    head = {"code": code, "severity": rule.severity.value, "reader": rule.reader.value, "title": rule.title}
    return head | asdict(EXPLANATIONS[code])
