"""What lanes cost the host: the same requests in one batch of one scheduler, and in lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.plan import Case, measure
from tools.bench.report import Column, milliseconds, times
from tools.bench.settings import Settings, Steady
from tools.bench.stats import core_ms, cpu_ms, middle, ratio, step_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.plan import Rounds
    from tools.bench.rig import Checkout

__all__ = ["COLUMNS", "Lanes"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("scheduling", "scheduling", left=True),
    Column("lanes", "lanes"),
    Column("step, ms", "step_ms", milliseconds),
    Column("by plain", "by_plain", times),
    Column("core, ms", "core_ms", milliseconds),
    Column("by plain", "core_by_plain", times),
    Column("CPU, ms", "cpu_ms", milliseconds),
)
MESH = "T3K"
"""Eight chips: as many lanes as divide them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """What is measured."""

    model: str
    rows: int
    lanes: Sequence[int]
    modes: Sequence[str]
    """``async``, ``sync``."""
    rounds: int
    steps: int
    """A round."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each way of scheduling and number of lanes, plain first."""
        for mode in self.modes:
            cases = [self._case(mode, count) for count in (1, *self.lanes)]
            asked = Steady(rows=self.rows, steps=self.steps)
            found = measure(cases, checkouts, self.rounds, lambda rig, _, asked=asked: rig.steady(asked), progress)
            yield from (_record(case, cases[0], one, found) for case in cases for one in checkouts)

    def _case(self, mode: str, lanes: int) -> Case:
        settings = Settings(model=self.model, rows=self.rows, lanes=lanes, mesh=MESH, asynchronous=mode == "async")
        return Case(name=f"{mode}, {lanes}", settings=settings)


def _record(case: Case, plain: Case, checkout: Checkout, found: Rounds) -> dict[str, Any]:
    timings, others = found[checkout.name, case.name], found[checkout.name, plain.name]
    return {
        "checkout": checkout.name,
        "scheduling": case.name.partition(",")[0],
        "lanes": case.settings.lanes,
        "step_ms": middle([step_ms(timing) for timing in timings]),
        "by_plain": ratio([step_ms(timing) for timing in timings], [step_ms(timing) for timing in others]),
        "core_ms": middle([core_ms(timing) for timing in timings]),
        "core_by_plain": ratio([core_ms(timing) for timing in timings], [core_ms(timing) for timing in others]),
        "cpu_ms": middle([cpu_ms(timing) for timing in timings]),
    }
