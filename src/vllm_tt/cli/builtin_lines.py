"""The built-in models as a table for people: a row for each class, and what it takes below, in the terminal's width."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from vllm_tt.cli.report import columns
from vllm_tt.models.builtin import meshes_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tt.models.inventory import BuiltinRow

__all__ = ["builtin_details", "builtin_lines"]

_HEAD = ["REGISTERED", "VARIANT", "MESHES", "SERVED"]


def builtin_lines(rows: Sequence[BuiltinRow]) -> Iterator[str]:
    """The table of ``rows``, its head first."""
    if not rows:
        yield "No built-in model is so."
        return
    width = min(max(shutil.get_terminal_size().columns, 80), 120)
    cells = [[row.arch, _variant(row), meshes_text(row.meshes), _served(row)] for row in rows]
    head, *lines = columns([_HEAD, *cells])
    yield head
    for row, line in zip(rows, lines, strict=True):
        yield line
        yield f"  {row.main_class}"
        for detail in builtin_details(row):
            yield from textwrap.wrap(
                detail, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )


def builtin_details(row: BuiltinRow) -> Iterator[str]:
    """What its class takes, a sentence each."""
    if row.selector:
        yield f"Selected by {row.selector}{' (the default)' if row.default else ''}"
    if row.missing:
        yield f"Not served yet: {', '.join(row.missing)}"
    if not row.test_model:
        yield f"Tokens for all users: {'; '.join(map(str, row.capacities))}"
    if row.variables:
        yield f"Needs {', '.join(row.variables)}"
    yield from row.notes
    for mesh, options in row.options.items():
        yield f"On {mesh}: {options}"


def _variant(row: BuiltinRow) -> str:
    return row.selector.partition("=")[2] or "-"


def _served(row: BuiltinRow) -> str:
    return "lanes" if row.lanes and row.served == "yes" else row.served
