"""The command line of the benchmarks."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from tools.bench.rig import HERE, Checkout
from tools.bench.workloads import WORKLOADS

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tools.bench.report import Column

__all__ = ["main"]

POSITIVE = click.IntRange(min=1)
TIME = click.FloatRange(min=0)
VOCABULARY = 32_000
FILE_WIDTH = 160
"""Of a table that is not shown on a terminal."""


class Numbers(click.ParamType):
    """Numbers with commas between."""

    name = "numbers"

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return [self._kind(text) for text in value.split(",")]
        except ValueError:
            self.fail(f"{value!r}: expected numbers with commas between", param, ctx)


def _option(name: str, help_text: str, default: Any, kind: Any = None) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, show_default=True, help=help_text)


def _modes(command: Any) -> Any:
    kind = click.Choice(["both", "async", "sync"])
    return _option("--scheduling", "Asynchronous or synchronous scheduling.", "both", kind)(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here too."
)
@click.option(
    "--compare",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Measure this checkout of the project too, in turn with this one.",
)
@click.pass_context
def main(context: click.Context, json_file: Path | None, compare: Path | None) -> None:
    """Measure the host's side of serving, on a device that computes nothing.

    Everything is measured in processes of its own, in rounds, case after case; figures are medians. See
    docs/performance.md.
    """
    try:
        checkouts = [HERE] if compare is None else [HERE, Checkout.other(compare)]
    except TTError as error:
        raise click.ClickException(str(error)) from None
    context.obj = _Output(context.invoked_subcommand or "", json_file, checkouts)


@main.command()
@_option("--sizes", "Batch sizes.", "1,8,32,128", Numbers(int))
@_option("--device-ms", "Times of a decode step on the device.", "0,3,10", Numbers(float))
@_option("--rounds", "How often each case is measured.", 5, POSITIVE)
@_option("--steps", "Steps of a round.", 200, POSITIVE)
@_modes
@click.pass_obj
def steps(output: _Output, sizes: list[int], device_ms: list[float], scheduling: str, **asked: int) -> None:
    """Steady decoding: step time, overlap, the host's CPU time and drains, beside the floor."""
    from tools.bench.steps import COLUMNS, Steps

    with _checkpoints(VOCABULARY) as models:
        plan = Steps(
            model=str(models[VOCABULARY]), sizes=sizes, device_ms=device_ms, modes=_chosen(scheduling), **asked
        )
        output.show("Steady decoding", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--rows", "Slots of all lanes.", 32, POSITIVE)
@_option("--lanes", "Numbers of lanes.", "4", Numbers(int))
@_option("--rounds", "How often each case is measured.", 7, POSITIVE)
@_option("--steps", "Steps of a round.", 400, POSITIVE)
@_modes
@click.pass_obj
def lanes(output: _Output, scheduling: str, **asked: Any) -> None:
    """Steady decoding in lanes, beside one batch of as many rows."""
    from tools.bench.lanes import COLUMNS, Lanes

    with _checkpoints(VOCABULARY) as models:
        plan = Lanes(model=str(models[VOCABULARY]), modes=_chosen(scheduling), **asked)
        output.show(f"Decode steps of {plan.rows} rows", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--rows", "Batch size.", 32, POSITIVE)
@_option("--rounds", "How often each case is measured.", 9, POSITIVE)
@_option("--steps", "Steps of a round.", 400, POSITIVE)
@_modes
@click.pass_obj
def books(output: _Output, scheduling: str, **asked: Any) -> None:
    """Counting what steps do, and writing the step log, beside steps that nobody counts."""
    from tools.bench.books import COLUMNS, Books

    with _checkpoints(VOCABULARY) as models:
        plan = Books(model=str(models[VOCABULARY]), modes=_chosen(scheduling), **asked)
        output.show(f"Decode steps of {plan.rows} rows", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--vocabularies", "Sizes of the vocabulary.", "32000,151936", Numbers(int))
@_option("--rows", "Batch size.", 32, POSITIVE)
@_option("--dtype", "Of the logits.", "float32", click.Choice(["float32", "bfloat16"]))
@_option("--rounds", "How often each case is measured.", 5, POSITIVE)
@_option("--steps", "Steps of a round.", 60, POSITIVE)
@click.pass_obj
def sampling(output: _Output, vocabularies: list[int], **asked: Any) -> None:
    """Sampling on the host, above a step that the device samples."""
    from tools.bench.sampling import COLUMNS, Sampling

    with _checkpoints(*vocabularies) as models:
        plan = Sampling(models=models, **asked)
        output.show(f"Decode steps of {plan.rows} rows", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--rows", "Slots.", 32, POSITIVE)
@_option("--rate", "Arrivals a second.", 50.0, click.FloatRange(min=0, min_open=True))
@_option("--device-ms", "Time of a decode step on the device.", 10.0, TIME)
@_option("--seconds", "Of a round.", 20.0, TIME)
@_option("--warm", "Seconds before it.", 5.0, TIME)
@_option("--rounds", "How often each case is measured.", 3, POSITIVE)
@_modes
@click.pass_obj
def churn(output: _Output, scheduling: str, **asked: Any) -> None:
    """Requests that come and go, of 20 to 200 tokens: what changes of the batch cost."""
    from tools.bench.churn import COLUMNS, Churn

    with _checkpoints(VOCABULARY) as models:
        plan = Churn(model=str(models[VOCABULARY]), modes=_chosen(scheduling), **asked)
        output.show("Requests that come and go", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--sizes", "Batch sizes.", "32,128", Numbers(int))
@_option("--lanes", "Lanes that share the rows.", 1, POSITIVE)
@_option("--workload", "What the requests ask for.", "greedy", click.Choice(sorted(WORKLOADS)))
@_option("--rounds", "How often each size is profiled.", 5, POSITIVE)
@_option("--steps", "Steps of a round.", 3000, POSITIVE)
@_option("--top", "Functions to report.", 15, POSITIVE)
@click.pass_obj
def profile(output: _Output, **asked: Any) -> None:
    """The functions of ours in which a step without device time spends its time."""
    from tools.bench.profiling import COLUMNS, Profile

    with _checkpoints(VOCABULARY) as models:
        plan = Profile(model=str(models[VOCABULARY]), **asked)
        output.show("A step's CPU time", COLUMNS, plan.run(output.checkouts, output.progress))


@main.command()
@_option("--rounds", "How often each case is measured.", 3, POSITIVE)
@click.pass_obj
def startup(output: _Output, rounds: int) -> None:
    """From `vllm serve` to healthy by phase, with vLLM's model-info cache warm and empty."""
    from tools.bench.startup import COLUMNS, Startup

    with _checkpoints(VOCABULARY) as models:
        plan = Startup(model=str(models[VOCABULARY]), rounds=rounds)
        output.show("From vllm serve to healthy", COLUMNS, plan.run(output.checkouts, output.progress))


class _Output:
    """Where results go, and whom they are of."""

    def __init__(self, command: str, json_file: Path | None, checkouts: Sequence[Checkout]) -> None:
        self._command, self._json_file = command, json_file
        self.checkouts = checkouts
        self._status = Console(stderr=True).status("starting engines")

    def progress(self, text: str) -> None:
        self._status.update(text)

    def show(self, title: str, columns: Sequence[Column], records: Iterable[dict[str, Any]]) -> None:
        from tools.bench.report import as_table, write

        try:
            with self._status:
                found = list(records)
        except TTError as error:
            raise click.ClickException(str(error)) from None
        several = len(self.checkouts) > 1
        shown = [column for column in columns if several or column.key != "checkout"]
        console = Console()
        Console(width=None if console.is_terminal else FILE_WIDTH).print(as_table(title, shown, found))
        if self._json_file is not None:
            write(self._json_file, self._command, found)


def _chosen(scheduling: str) -> list[str]:
    return ["async", "sync"] if scheduling == "both" else [scheduling]


@contextmanager
def _checkpoints(*vocabularies: int) -> Iterator[dict[int, Path]]:
    from tools.bench.checkpoint import write_checkpoint

    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        yield {size: write_checkpoint(Path(folder) / f"no-op-{size}", size) for size in vocabularies}
