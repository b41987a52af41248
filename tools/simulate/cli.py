"""The command line of the simulator."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.simulate.run import Result
    from tools.simulate.workload import Job

__all__ = ["BadPolicy", "main", "tt_options"]

COMPARED = "off,1/1,2/1,4/1"


class BadPolicy(ConfigError):
    """{text!r} is no interleaving policy: expected off, or PREFILLS/DECODES such as 2/1 (at most 2 prefill steps
    in a row, then 1 decode step).
    """


def tt_options(policy: str) -> dict[str, Any]:
    """The options of ``additional_config["tt"]`` for ``off`` or ``2/1``."""
    if policy == "off":
        return {"decode_interleave_enabled": False}
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", policy)
    if found is None:
        raise BadPolicy(text=policy)
    return {"decode_interleave_prefill_steps": int(found[1]), "decode_interleave_decode_steps": int(found[2])}


def _grouped(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def _option(name: str, help_text: str, default: Any = None, kind: Any = None) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, show_default=default is not None, help=help_text)


POSITIVE = click.IntRange(min=1)
COST = click.FloatRange(min=0)

workload_options = _grouped(
    _option("--trace", "JSON lines of arrival (s), prompt, output (tokens) instead of a drawn workload.", kind=Path),
    _option("--requests", "How many requests.", 1000, POSITIVE),
    _option("--arrival", "How they arrive.", "poisson", click.Choice(["poisson", "constant", "burst"])),
    _option("--rate", "Requests a second.", 8.0, click.FloatRange(min=0, min_open=True)),
    _option("--burst", "Requests that arrive together, with --arrival burst.", 32, POSITIVE),
    _option("--prompt", "Prompt tokens: 512, uniform:16-1024 or lognormal:MEDIAN:SIGMA.", "lognormal:512:0.8"),
    _option("--output", "Output tokens, likewise.", "lognormal:128:0.6"),
    _option("--prefix-tokens", "Length of a prefix that requests share.", 0, click.IntRange(min=0)),
    _option("--prefix-share", "Share of the requests that have one.", 0.5, click.FloatRange(0, 1)),
    _option("--prefix-groups", "How many different prefixes there are.", 1, POSITIVE),
    _option("--priorities", "Priorities to draw from, with --scheduling-policy priority.", 1, POSITIVE),
    _option("--seed", "The same seed gives the same run.", 0, int),
)
device_options = _grouped(
    _option("--prefill-token-ms", "Device time of a prompt token.", 0.05, COST),
    _option("--prefill-step-ms", "Device time that each prefill step adds.", 0.0, COST),
    _option("--decode-step-ms", "Device time of a decode step.", 10.0, COST),
    _option("--switch-ms", "Device time of a change between prefill and decode.", 0.0, COST),
    _option("--host-ms", "Host time of a step.", 0.0, COST),
)
server_options = _grouped(
    _option("--lanes", "Lanes; slots, budget and KV cache are those of each.", 1, POSITIVE),
    click.option("--rebinding/--no-rebinding", default=True, help="Whether requests that wait may change lanes."),
    _option("--max-num-seqs", "Slots.", 32, POSITIVE),
    _option("--max-num-batched-tokens", "Tokens of a prefill step.", 2048, POSITIVE),
    _option("--max-model-len", "Longest request, prompt and output.", 8192, POSITIVE),
    _option("--block-size", "Tokens of a KV page.", 64, POSITIVE),
    _option("--kv-tokens", "Tokens that the KV cache holds.", 131_072, POSITIVE),
    click.option("--chunked-prefill/--no-chunked-prefill", default=True, show_default=True),
    click.option("--prefix-caching/--no-prefix-caching", default=False, show_default=True),
    click.option("--async-scheduling/--no-async-scheduling", default=False, show_default=True),
    _option("--scheduling-policy", "vLLM's.", "fcfs", click.Choice(["fcfs", "priority"])),
)
output_options = _grouped(
    _option("--policy", "Decode interleave: off, or PREFILLS/DECODES.", "2/1"),
    click.option("--compare", is_flag=False, flag_value=COMPARED, help=f"Several policies; alone: {COMPARED}."),
    click.option("--json", "as_json", is_flag=True, help="Print the reports as a JSON list."),
    _option("--plot", "Write a plot of the steps (PNG).", kind=Path),
    _option("--plot-from", "Seconds of the run at which the plot begins.", 0.0, COST),
    _option("--plot-seconds", "How long it is; the whole run without it.", kind=COST),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@workload_options
@device_options
@server_options
@output_options
def main(**options: Any) -> None:
    """Serve a workload with the real phase scheduler on a simulated device, and report who waited for what."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        _report(_results(options), options)
    except (TTError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _results(options: dict[str, Any]) -> list[Result]:
    policies = (options["compare"] or options["policy"]).split(",")
    extra = {policy: tt_options(policy) for policy in policies}
    jobs = _jobs(options)

    from tools.simulate.device import DeviceModel
    from tools.simulate.run import simulate
    from tools.simulate.server import Server

    device = DeviceModel(**_pick(options, DeviceModel))
    results = []
    with _progress() as progress:
        for policy in policies:
            task = progress.add_task(policy, total=len(jobs))
            server = Server(**_pick(options, Server), tt=extra[policy])
            step = lambda finished, task=task: progress.advance(task, finished)  # noqa: E731
            results.append(simulate(jobs, server, device, policy=policy, progress=step))
    return results


def _jobs(options: dict[str, Any]) -> list[Job]:
    from tools.simulate.lengths import Lengths
    from tools.simulate.trace import read_trace
    from tools.simulate.workload import Workload

    if options["trace"] is not None:
        return read_trace(options["trace"])
    lengths = {name: Lengths.parse(options[name]) for name in ("prompt", "output")}
    return Workload(**_pick(options, Workload) | lengths).jobs(options["max_model_len"])


def _pick(options: dict[str, Any], record: Any) -> dict[str, Any]:
    """The options that are fields of ``record``."""
    return {name: value for name, value in options.items() if name in record.__dataclass_fields__}


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), refresh_per_second=2)


def _report(results: Sequence[Result], options: dict[str, Any]) -> None:
    reports = [result.report for result in results]
    if options["plot"] is not None:
        from tools.simulate.plot import draw

        end = options["plot_seconds"] and options["plot_from"] + options["plot_seconds"]
        draw(results, options["plot"], begin=options["plot_from"], end=end)
    if options["as_json"]:
        click.echo(json.dumps([report.to_dict() for report in reports], indent=2))
    else:
        from tools.simulate.table import as_table

        console = Console()
        console.print(as_table(reports))
