"""Reports as text: one column a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.simulate.stats import Latency, Report

__all__ = ["as_table"]

ROWS: list[tuple[str, Callable[[Report], str]]] = [
    ("requests", lambda r: f"{r.requests:,}"),
    ("duration, s", lambda r: f"{r.duration_s:,.1f}"),
    ("requests a second", lambda r: f"{r.requests_per_s:,.2f}"),
    ("output tokens a second", lambda r: f"{r.output_tokens_per_s:,.1f}"),
    ("device busy", lambda r: f"{r.device_busy:.1%}"),
    ("prefill / decode steps", lambda r: f"{r.prefill_steps:,} / {r.decode_steps:,}"),
    ("mode switches", lambda r: f"{r.switches:,}"),
    ("longest run of prefill steps", lambda r: f"{r.longest_prefill_run:,}"),
    ("preemptions", lambda r: f"{r.preemptions:,}"),
    ("recomputed tokens", lambda r: f"{r.recomputed_tokens:,}"),
    ("tokens from the prefix cache", lambda r: f"{r.cached_tokens:,}"),
    ("slots, mean / most", lambda r: f"{r.slots_mean:.1f} / {r.slots_max}"),
    ("KV pages, mean / most", lambda r: f"{r.kv_mean:.0%} / {r.kv_max:.0%}"),
]

LATENCIES: list[tuple[str, Callable[[Report], Latency | None]]] = [
    ("first token", lambda r: r.ttft_ms),
    ("inter-token", lambda r: r.itl_ms),
    ("last token", lambda r: r.e2e_ms),
]

WAITS: list[tuple[str, Callable[[Report], dict[str, float]]]] = [
    ("decodes held up", lambda r: r.decode_stalls_s),
    ("first tokens held up", lambda r: r.first_token_waits_s),
]


def as_table(reports: Sequence[Report]) -> Table:
    """The reports side by side."""
    table = Table("", *(report.policy for report in reports))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, show in ROWS:
        table.add_row(name, *map(show, reports))
    for name, latency in LATENCIES:
        table.add_section()
        for part in ("p50", "p90", "p99", "max"):
            table.add_row(f"{name} {part}, ms", *(_part(latency(report), part) for report in reports))
    for name, waits in WAITS:
        causes = dict.fromkeys(cause for report in reports for cause in waits(report))
        table.add_section()
        for cause in causes:
            table.add_row(f"{name}: {cause}, request-s", *(f"{waits(report).get(cause, 0):,.1f}" for report in reports))
    return table


def _part(latency: Latency | None, part: str) -> str:
    return "-" if latency is None else f"{getattr(latency, part):,.1f}"
