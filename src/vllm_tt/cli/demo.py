"""``tt-bundle demo``: a small real model served on an emulated mesh, and one question to it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vllm_tt.cli.ending import terminable
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.demo.checkpoint import MODEL_NAME
from vllm_tt.demo.run import Demo, Report, Watcher, run
from vllm_tt.demo.server import ServerFailed
from vllm_tt.errors import TTError
from vllm_tt.mesh import MESH_GRIDS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command"]


class DemoServerFailed(TTError):
    """The demo's server {fault} after {seconds:.0f} s. Its log is {log}; the end of it is above."""


@click.command("demo")
@click.option("--mesh", type=click.Choice(list(MESH_GRIDS)), default="N300", show_default=True, help="Mesh to emulate.")
@click.option("--question", default="What is the capital of France?", show_default=True, help="What to ask.")
@click.option("--max-tokens", type=click.IntRange(1, 1024), default=128, show_default=True, help="Longest answer.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the server; a free one by default.")
@click.option("--keep", is_flag=True, help="Leave the server running, and print a request for it.")
@json_option
def command(mesh: str, question: str, max_tokens: int, port: int, keep: bool) -> None:
    """Serve SmolLM2-135M-Instruct on an emulated mesh, ask it one question, and stop.

    No device is needed: the model computes on the host, through the same stack that serves on hardware.
    """
    demo = Demo(question=question, mesh=mesh, max_tokens=max_tokens, port=port, keep=keep)
    try:
        with terminable(), _watching(demo) as watcher:
            report = run(demo, watcher)
    except ServerFailed as error:
        click.echo(str(error.facts["tail"]).strip(), err=True)
        raise DemoServerFailed(**error.facts) from error
    answer(_lines(demo, report), _content(demo, report))


def _lines(demo: Demo, report: Report) -> Iterator[str]:
    told = report.answer
    yield "" if _streams() else told.text
    yield (
        f"\nHealthy after {report.healthy_seconds:.1f} s; first token after {told.first_token_seconds:.2f} s; "
        f"{told.tokens} tokens at {told.tokens_per_second:.1f} tokens/s."
    )
    if demo.keep:
        yield f"\nThe server runs on at {report.url} (log: {report.log}). Ask it more:\n{report.curl}"
        yield f"Stop it: kill {report.pid}"


def _content(demo: Demo, report: Report) -> dict[str, object]:
    return {
        "model": MODEL_NAME,
        "checkpoint": str(report.checkpoint),
        "mesh": demo.mesh,
        "question": demo.question,
        "answer": report.answer.text,
        "healthy_seconds": round(report.healthy_seconds, 2),
        "timing": asdict(report.answer) | {"tokens_per_second": round(report.answer.tokens_per_second, 2)},
        "log": str(report.log),
        "server": {"url": report.url, "pid": report.pid, "curl": report.curl} if demo.keep else None,
    }


def _streams() -> bool:
    """The answer is shown as it comes, so it is not printed again."""
    return sys.stdout.isatty() and not session().json


@contextmanager
def _watching(demo: Demo) -> Iterator[Watcher]:
    """Live lines on a terminal, one line a stage elsewhere; on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        stages = {
            "prepare": progress.add_task(f"Writing {MODEL_NAME}", total=None, visible=False, note=""),
            "start": progress.add_task(f"Starting on an emulated {demo.mesh}", total=None, visible=False, note=""),
        }

        def preparing(done: int, steps: int) -> None:
            if not done:
                console.print(f"Writing the {MODEL_NAME} checkpoint, once.")
            progress.update(stages["prepare"], completed=done, total=steps, visible=done < steps)

        def starting(_seconds: float, message: str) -> None:
            if not progress.tasks[1].visible:
                console.print(f"Starting `vllm serve` with {MODEL_NAME} on an emulated {demo.mesh}.")
            progress.update(stages["start"], visible=True, note=message[:60])

        def healthy(seconds: float) -> None:
            progress.stop()
            console.print(f"Healthy after {seconds:.1f} s. Asking: {demo.question}\n", markup=False)

        def text(piece: str) -> None:
            if _streams():
                click.echo(piece, nl=False)

        yield Watcher(preparing=preparing, starting=starting, healthy=healthy, text=text)
