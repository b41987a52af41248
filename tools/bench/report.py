"""Results as tables and as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Column", "as_table", "machine", "milliseconds", "percent", "reasons", "times", "write"]

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a key of the records and how its values are written."""

    title: str
    key: str
    show: Callable[[Any], str] = str
    left: bool = False


def milliseconds(value: float) -> str:
    return f"{value:,.2f}"


def percent(value: float) -> str:
    return f"{value:.1%}"


def times(value: float) -> str:
    return f"{value:.2f}x"


def reasons(value: dict[str, float]) -> str:
    """``sampling 0.25, membership 0.01``: how often a step."""
    return ", ".join(f"{reason} {share:.2g}" for reason, share in value.items())


def as_table(title: str, columns: Sequence[Column], records: Sequence[Record]) -> Table:
    """One line a record; a column that no record has is left out, a missing value is a dash."""
    shown = [column for column in columns if any(record.get(column.key) not in (None, {}) for record in records)]
    table = Table(title=title, title_justify="left")
    for column in shown:
        table.add_column(column.title, justify="left" if column.left else "right")
    for record in records:
        table.add_row(*(_cell(column, record.get(column.key)) for column in shown))
    return table


def _cell(column: Column, value: Any) -> str:
    return "-" if value is None else column.show(value)


def machine() -> Record:
    """Where the figures come from."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "python": platform.python_version(),
        "vllm": version("vllm"),
        "torch": version("torch"),
        "load": os.getloadavg()[0],
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def write(file: Path, command: str, records: Sequence[Record]) -> None:
    document = {"command": command, "machine": machine(), "results": list(records)}
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
