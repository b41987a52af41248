"""``tt-bundle diff``: what differs between two bundles."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.difference import SECTIONS, Change, difference
from vllm_tt.bundle.findings import shown
from vllm_tt.bundle.inspection import Inspection, inspect, opened
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option
from vllm_tt.cli.shipping import ARCHIVE_OR_FOLDER, max_size_option, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["command"]


@click.command("diff")
@click.argument("first", metavar="A", type=ARCHIVE_OR_FOLDER)
@click.argument("second", metavar="B", type=ARCHIVE_OR_FOLDER)
@max_size_option
@json_option
@click.pass_context
def command(context: click.Context, /, first: Path, second: Path, max_size: int) -> None:
    """Compare two bundles, folders or archives: metadata, capabilities, methods' signatures and files.

    Exits with 1 when they differ.
    """
    looked = (_inspected(context, first, max_size), _inspected(context, second, max_size))
    changes = difference(*looked, names=(path_text(first), path_text(second)))
    answer(_lines(changes), _content(first, second, changes), ok=not changes)
    if changes:
        context.exit(Exit.FINDINGS)


def _inspected(context: click.Context, path: Path, max_size: int) -> Inspection:
    try:
        with opened(path, max_size) as folder:
            return inspect(folder)
    except ArchiveRefused as error:
        remark([(path_text(path), error.finding)])
        answer((), {"findings": records([error.finding], str(path))}, ok=False)
        context.exit(Exit.FINDINGS)


def _lines(changes: tuple[Change, ...]) -> Iterator[str]:
    if not changes:
        yield "no difference"
    for section in SECTIONS:
        here = [change for change in changes if change.section == section]
        if here:
            yield f"{section}:"
        for change in here:
            yield f"  {_mark(change)} {_text(change.name)}: {_sides(change)}"


def _mark(change: Change) -> str:
    return "+" if change.before is None else "-" if change.after is None else "~"


def _sides(change: Change) -> str:
    return " -> ".join(_text(side) for side in (change.before, change.after) if side is not None)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text.isprintable() and len(text) <= 300 else shown(text, 300)


def _content(first: Path, second: Path, changes: tuple[Change, ...]) -> dict[str, Any]:
    return {
        "first": str(first),
        "second": str(second),
        "changes": [asdict(change) for change in changes],
        "summary": {section: sum(change.section == section for change in changes) for section in SECTIONS},
    }
