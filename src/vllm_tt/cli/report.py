"""How commands answer: lines on stdout, or with ``--json`` exactly one document, whatever the outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from vllm_tt._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vllm_tt.bundle.findings import Finding

__all__ = ["Session", "answer", "columns", "failure", "finding_record", "json_option", "session"]


@dataclass(slots=True)
class Session:
    """What the options common to all commands ask for."""

    json: bool = False
    debug: bool = False


def session() -> Session:
    """The session of the command that is running."""
    context = click.get_current_context()
    return context.ensure_object(Session)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--json`` to a command; the group has it too."""

    def turn_on(context: click.Context, _option: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Session).json = True

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=turn_on,
        is_eager=True,
        help="Print one JSON document and nothing else on stdout.",
    )(command)


def answer(lines: Iterable[str], content: dict[str, Any], *, ok: bool = True) -> None:
    """Print a command's result: ``lines`` for people, or ``content`` as JSON."""
    if session().json:
        _document({"ok": ok, **content, "error": None})
        return
    for line in lines:
        click.echo(line)


def failure(message: str, code: int) -> None:
    """Say on stderr, in one line, why the command ends; with ``--json`` also as the document."""
    click.echo(f"tt-bundle: error: {' '.join(message.split())}", err=True)
    if session().json:
        _document({"ok": False, "error": {"code": code, "message": message}})


def finding_record(found: Finding, path: str) -> dict[str, Any]:
    """A finding for the JSON document."""
    return {
        "code": found.code,
        "severity": found.severity.value,
        "path": path,
        "line": found.line,
        "column": found.column,
        "message": found.message,
        "hint": found.hint or None,
    }


def columns(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """The rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def _document(content: dict[str, Any]) -> None:
    context = click.get_current_context()
    name = context.info_name if context.parent else context.invoked_subcommand
    head = {"ok": content.pop("ok"), "command": name, "version": __version__}
    click.echo(json.dumps({**head, **content}, indent=2))
