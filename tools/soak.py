"""Random workloads on the paged-hash oracle, for as many requests as asked: the long form of the test suite's runs.

    uv run tools/soak.py                       20,000 requests over all cases, synchronous and asynchronous
    uv run tools/soak.py --case pressure --seed 7 --requests 200 --mode async
    uv run tools/soak.py --lanes 4             every case in four lanes, on an emulated Galaxy

The seed of every run is printed; a run that fails is replayed by its command.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TESTS = Path(__file__).parents[1] / "tests"
MODES = {"sync": False, "async": True}

sys.path.insert(0, str(TESTS / "support"))


def prepare_environment(lanes):
    """Before anything imports vLLM."""
    os.environ.setdefault("TT_EMULATE", "TG" if lanes else "N300")
    os.environ["EXTRA_MODELS_DIR"] = str(TESTS / "bundles_for_serving")
    os.environ["PAGED_HASH_CAPABILITIES"] = "supports_prefix_caching,supports_chunked_prefill,supports_async_decode"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"


@click.command()
@click.option("--requests", default=20_000, show_default=True, help="Requests in total, over all cases and modes.")
@click.option("--case", "only", multiple=True, help="Run these cases alone.")
@click.option("--mode", type=click.Choice(sorted(MODES)), multiple=True, help="Run this mode alone.")
@click.option("--lanes", type=int, help="Run every case in so many lanes.  [default: the case's own]")
@click.option("--seed", type=int, help="The seed of the first run; the others follow.  [default: from the clock]")
@click.option("--per-run", default=200, show_default=True, help="Requests on one engine.")
def main(requests, only, mode, lanes, seed, per_run):
    """Soak scheduler, batch and worker; exit code 1 at the first fault."""
    prepare_environment(lanes)
    from oracle import write_checkpoint
    from soaking import CASES, run_case

    if unknown := set(only) - set(CASES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; known: {', '.join(CASES)}", param_hint="--case")
    pairs = [(name, m) for name in only or CASES for m in mode or MODES]
    runs = max(1, -(-requests // per_run))
    seed = int(time.time()) if seed is None else seed
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console) as progress:
        checkpoint = write_checkpoint(Path(folder) / "model")
        task = progress.add_task("requests", total=runs * per_run)
        for run in range(runs):
            name, m = pairs[run % len(pairs)]
            progress.update(task, description=f"{name}, {m}, seed {seed + run}")
            if not console.is_terminal:
                console.print(f"{run * per_run} of {runs * per_run}: {name}, {m}, seed {seed + run}")
            try:
                run_case(checkpoint, name, asynchronous=MODES[m], seed=seed + run, number=per_run, lanes=lanes)
            except Exception:
                replay = f"uv run tools/soak.py --case '{name}' --mode {m} --seed {seed + run}"
                replay += f" --lanes {lanes}" if lanes else ""
                console.print(f"FAILED; replay with: {replay} --requests {per_run} --per-run {per_run}")
                raise
            progress.advance(task, per_run)
    done = f"{runs * per_run} requests over {min(runs, len(pairs))} configurations"
    done += f" in {lanes} lanes" if lanes else ""
    print(f"{done}, seeds {seed} to {seed + runs - 1}: exact")


if __name__ == "__main__":
    main()
