"""``tt-bundle steps``: where the time of a step log went, what to change, and its timeline."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_tt.cli.report import answer, json_option
from vllm_tt.observe.advice import remarks
from vllm_tt.observe.steps import read
from vllm_tt.observe.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tt.observe.advice import Remark
    from vllm_tt.observe.timeline import Timeline

__all__ = ["command"]

WIDTH = 100
_INDENT = " " * 17

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path)


@click.command("steps")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--html", metavar="OUT", type=_OUT, help="Draw the timeline as a page that needs nothing else.")
@click.option("--png", metavar="OUT", type=_OUT, help="Draw the timeline as a picture.")
@json_option
def command(paths: tuple[Path, ...], html: Path | None, png: Path | None) -> None:
    """Say where decode time went and what to change, from the files that tt.step_log wrote: one for each engine.

    FILE.1, the older half of a log that has grown to its limit, is read with FILE. Drawing does not change the log.
    """
    logs = [read(path) for path in paths]
    summary = summarize(logs)
    said = remarks(summary)
    drawn = []
    if html is not None:
        from vllm_tt.observe.page import write_page

        drawn.append((html, write_page(logs, said, html)))
    if png is not None:
        from vllm_tt.observe.picture import write_png

        drawn.append((png, write_png(logs, png)))
    content = {
        "files": [str(path) for path in paths],
        "figures": {**asdict(summary), "stall_share": summary.stall_share},
        "remarks": [asdict(one) for one in said],
        "drawn": [{"path": str(path), "steps_joined": timeline.joined} for path, timeline in drawn],
    }
    answer([*_lines(said), *_drawn(drawn)], content)


def _lines(said: Sequence[Remark]) -> Iterator[str]:
    for one in said:
        yield from textwrap.wrap(
            one.text, WIDTH, initial_indent=f"{one.about:15}  ", subsequent_indent=_INDENT, break_on_hyphens=False
        )
        if one.advice:
            yield from textwrap.wrap(
                one.advice,
                WIDTH,
                initial_indent=f"{_INDENT}-> ",
                subsequent_indent=f"{_INDENT}   ",
                break_on_hyphens=False,
            )


def _drawn(drawn: Sequence[tuple[Path, Timeline]]) -> Iterator[str]:
    for path, timeline in drawn:
        thinned = f" (thinned: {timeline.joined} successive steps together)" if timeline.joined > 1 else ""
        yield f"drawn: {path}{thinned}"
