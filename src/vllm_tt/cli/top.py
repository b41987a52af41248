"""``tt-bundle top``: what a server does now and why it is not faster, from its ``/metrics``."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vllm_tt.cli.ending import terminable
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.observe.live import Restarted, activity
from vllm_tt.observe.scrape import metrics_url, scrape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from vllm_tt.observe.live import Activity, Lane
    from vllm_tt.observe.scrape import Reading

__all__ = ["command"]

WIDTH = 80
LANES_SHOWN = 16
_BAR = 20


@click.command("top")
@click.argument("url", metavar="URL")
@click.option("--once", is_flag=True, help="Show one interval and end; so does --json.")
@click.option(
    "--interval", metavar="S", type=click.FloatRange(0.2, 3600.0), default=2.0, help="Seconds between readings; 2."
)
@json_option
def command(url: str, once: bool, interval: float) -> None:
    """Show what the server at URL (http://HOST:PORT) does: requests, tokens, where the time goes, lanes.

    All of it is of the last interval, from the server's /metrics. Ctrl-C ends it.
    """
    address = metrics_url(url)
    with terminable():
        if once or session().json or not sys.stdout.isatty():
            before = scrape(address)
            found, _ = _next(address, before, interval)
            answer(_lines(address, found), {"url": address, "activity": asdict(found)})
        else:
            _watch(address, interval)


def _watch(address: str, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    before = scrape(address)
    with Live(Text(f"reading {address} ..."), auto_refresh=False) as live:
        while True:
            found, before = _next(address, before, interval)
            live.update(_view(address, found), refresh=True)


def _next(address: str, before: Reading, interval: float) -> tuple[Activity, Reading]:
    """The next interval; one in which the server began anew is waited out."""
    while True:
        time.sleep(interval)
        after = scrape(address)
        try:
            return activity(before, after), after
        except Restarted:
            before = after


def _lines(address: str, found: Activity) -> Iterator[str]:
    from rich.console import Console

    console = Console(width=WIDTH, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(_view(address, found))
    yield from (line.rstrip() for line in capture.get().splitlines())


def _view(address: str, found: Activity) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = Table.grid(padding=(0, 2))
    figures.add_column(no_wrap=True)
    figures.add_column(overflow="fold")
    for name, text in _figures(found):
        figures.add_row(name, Text(text))
    lanes = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("lane", "running", "waiting", "slots", "KV", ""):
        lanes.add_column(title, justify="left" if title in ("lane", "") else "right", no_wrap=True)
    for lane in found.lanes[:LANES_SHOWN]:
        lanes.add_row(*_lane(lane, found.engines))
    head = Text(f"{', '.join(found.models)} at {address}, {found.seconds:.1f} s", style="bold", overflow="fold")
    more = len(found.lanes) - LANES_SHOWN
    return Group(head, figures, lanes, *([Text(f"and {more} more lanes")] if more > 0 else []))


def _figures(found: Activity) -> Iterator[tuple[str, str]]:
    yield "requests", f"{found.running} running, {found.waiting} waiting; KV cache {found.kv:.0%}"
    yield "tokens/s", f"{found.prompt_tokens:,.0f} prompt, {found.generated_tokens:,.0f} generated"
    for phase, part in found.time.items():
        text = f"{_bar(part)} {part:4.0%} of the time, {found.steps[phase]:.1f} steps/s"
        yield phase, text + (f" of {found.step_ms[phase]:.1f} ms" if found.steps[phase] else "")
    yield "device", f"{_bar(found.wait)} {found.wait:4.0%} of the steps' time waited for"
    stalls = f"{found.stall_share:4.0%} of decode time, {found.stalls} prefill steps"
    yield "stalls", f"{_bar(found.stall_share)} {stalls}"
    yield "host sampling", _counted(found.host)
    yield "drains", _counted(found.drains)
    yield "preemptions", f"{found.preemptions}, {found.recomputed_tokens:,} tokens recomputed"


def _lane(lane: Lane, engines: int) -> tuple[str, ...]:
    name = f"{lane.engine}/{lane.lane}" if engines > 1 else lane.lane
    return (
        name,
        str(lane.running),
        str(lane.waiting),
        str(lane.slots),
        f"{lane.kv:.0%}",
        _bar(lane.running / lane.slots),
    )


def _bar(part: float) -> str:
    full = round(min(1.0, part) * _BAR)
    return "#" * full + "." * (_BAR - full)


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in reasons.items()) or "none"
