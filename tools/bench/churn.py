"""Requests that come and go: how much of the device's time is lost to changes of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.plan import Case, measure
from tools.bench.report import Column, milliseconds, percent, reasons, times
from tools.bench.settings import Arriving, Settings
from tools.bench.stats import counted, cpu_ms, efficiency, middle, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.rig import Checkout, Rig
    from tools.bench.settings import Timing

__all__ = ["COLUMNS", "Churn"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("scheduling", "scheduling", left=True),
    Column("overlap", "efficiency", percent),
    Column("lost a prefill, ms", "lost_ms", milliseconds),
    Column("steps a second", "steps_per_s", lambda value: f"{value:,.1f}"),
    Column("CPU, ms", "cpu_ms", milliseconds),
    Column("steps", "kinds", reasons, left=True),
    Column("drains a step", "drains", reasons, left=True),
    Column("by this one", "by_here", times),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Churn:
    """What is measured."""

    model: str
    rows: int
    rate: float
    """Arrivals a second."""
    device_ms: float
    seconds: float
    """A round, after `warm`."""
    warm: float
    modes: Sequence[str]
    rounds: int

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each way of scheduling."""
        cases = [
            Case(name=mode, settings=Settings(model=self.model, rows=self.rows, asynchronous=mode == "async"))
            for mode in self.modes
        ]
        found = measure(cases, checkouts, self.rounds, self._ask, progress)
        for case in cases:
            for one in checkouts:
                yield _record(one, case, found[one.name, case.name], found[checkouts[0].name, case.name])

    def _ask(self, rig: Rig, case: Case) -> Timing:  # noqa: ARG002 - the settings say it all
        asked = Arriving(rate=self.rate, seconds=self.seconds, warm=self.warm, device_ms=self.device_ms)
        return rig.churn(asked)


def _record(checkout: Checkout, case: Case, timings: Sequence[Timing], here: Sequence[Timing]) -> dict[str, Any]:
    shares = [efficiency(timing) for timing in timings]
    losses = [lost for timing in timings if (lost := _lost_ms(timing)) is not None]
    record = {
        "checkout": checkout.name,
        "scheduling": case.name,
        "efficiency": middle(shares),
        "lost_ms": middle(losses) if losses else None,
        "steps_per_s": middle([timing.steps / sum(timing.loop) * 1e9 for timing in timings]),
        "cpu_ms": middle([cpu_ms(timing) for timing in timings]),
        "kinds": counted(timings, "steps"),
        "drains": counted(timings, "drains"),
    }
    return record if timings is here else record | {"by_here": ratio(shares, [efficiency(timing) for timing in here])}


def _lost_ms(timing: Timing) -> float | None:
    """For how long the device idled, by prefill step: what a change of the batch costs. None where none is counted."""
    prefills = sum(n for kind, n in timing.counters.get("steps", {}).items() if kind.startswith("prefill"))
    return (sum(timing.loop) - timing.device) / 1e6 / prefills if prefills else None
