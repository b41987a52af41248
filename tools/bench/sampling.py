"""Sampling on the host: what a decode step takes above one that the device samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.plan import Case, measure
from tools.bench.report import Column, milliseconds, reasons, times
from tools.bench.settings import Settings, Steady
from tools.bench.stats import above, core_ms, counted, cpu_ms, middle, ratio
from tools.bench.workloads import AMONG_GREEDY, AMONG_SAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tools.bench.plan import Rounds
    from tools.bench.rig import Checkout, Rig
    from tools.bench.settings import Timing

__all__ = ["COLUMNS", "Sampling"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("vocabulary", "vocabulary", lambda value: f"{value:,}"),
    Column("sampled", "sampled", left=True),
    Column("step, ms", "core_ms", milliseconds),
    Column("above device, ms", "above_ms", milliseconds),
    Column("host steps", "host", reasons, left=True),
    Column("by this one", "by_here", times),
)
DEVICE = "on the device, greedy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """What is measured."""

    models: dict[int, Path]
    """Checkpoints by vocabulary."""
    rows: int
    dtype: str
    rounds: int
    steps: int
    """A round."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each vocabulary and way of sampling. One vocabulary's engines run at a time."""
        for vocabulary, model in self.models.items():
            cases = self._cases(str(model))
            found = measure(cases, checkouts, self.rounds, self._ask, progress)
            for case in cases:
                for one in checkouts:
                    yield {"vocabulary": vocabulary, **_record(case, one, checkouts[0], found)}

    def _cases(self, model: str) -> list[Case]:
        common = {"model": model, "rows": self.rows, "dtype": self.dtype}
        host = Settings(**common, on_device=False)
        device, whole = Settings(**common), Settings(**common, row_logits=False)
        return [
            Case(name=DEVICE, settings=device, ask={"workload": "greedy"}),
            Case(name="on the device, top_k, top_p", settings=device, ask={"workload": "top_k, top_p"}),
            Case(name="reading the logits once", settings=host),
            Case(name="on the host, greedy", settings=host, ask={"workload": "greedy"}),
            Case(name="on the host, top_k, top_p", settings=host, ask={"workload": "top_k, top_p"}),
            Case(name="on the host, top_p", settings=host, ask={"workload": "top_p"}),
            Case(name="on the host, 5 logprobs", settings=host, ask={"workload": "logprobs"}),
            *(
                Case(name=f"{mixed}, {how}", settings=settings, ask={"workload": mixed})
                for mixed in (AMONG_GREEDY, AMONG_SAMPLED)
                for how, settings in (("by row", device), ("whole batch", whole))
            ),
        ]

    def _ask(self, rig: Rig, case: Case) -> Timing:
        if not case.ask:
            return rig.reading(self.steps)
        return rig.steady(Steady(rows=self.rows, steps=self.steps, **case.ask))


def _record(case: Case, checkout: Checkout, here: Checkout, found: Rounds) -> dict[str, Any]:
    timings = found[checkout.name, case.name]
    walls = [core_ms(timing) for timing in timings]
    record = {
        "checkout": checkout.name,
        "sampled": case.name,
        "core_ms": middle(walls),
        "cpu_ms": middle([cpu_ms(timing) for timing in timings]),
        "host": counted(timings, "host_sampling"),
    }
    if case.ask and case.name != DEVICE:
        record["above_ms"] = above(walls, [core_ms(timing) for timing in found[checkout.name, DEVICE]])
    if checkout is not here:
        record["by_here"] = ratio(walls, [core_ms(timing) for timing in found[here.name, case.name]])
    return record
