"""What the books of steps cost: the same requests uncounted, counted, and with the step log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.plan import Case, measure
from tools.bench.report import Column, milliseconds, times
from tools.bench.settings import Settings, Steady
from tools.bench.stats import core_ms, middle, ratio, step_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.plan import Rounds
    from tools.bench.rig import Checkout

__all__ = ["COLUMNS", "Books"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("scheduling", "scheduling", left=True),
    Column("books", "books", left=True),
    Column("step, ms", "step_ms", milliseconds),
    Column("by uncounted", "by_uncounted", times),
    Column("core, ms", "core_ms", milliseconds),
    Column("by uncounted", "core_by_uncounted", times),
)
UNCOUNTED, COUNTED, LOGGED = "off", "on", "log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Books:
    """What is measured."""

    model: str
    rows: int
    modes: Sequence[str]
    """``async``, ``sync``."""
    rounds: int
    steps: int
    """A round."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each way of scheduling and of keeping books, uncounted first."""
        for mode in self.modes:
            cases = [self._case(mode, books) for books in (UNCOUNTED, COUNTED, LOGGED)]
            asked = Steady(rows=self.rows, steps=self.steps)
            found = measure(cases, checkouts, self.rounds, lambda rig, _, asked=asked: rig.steady(asked), progress)
            yield from (_record(case, cases[0], one, found) for case in cases for one in checkouts)

    def _case(self, mode: str, books: str) -> Case:
        settings = Settings(model=self.model, rows=self.rows, asynchronous=mode == "async", books=books)
        return Case(name=f"{mode}, {books}", settings=settings)


def _record(case: Case, uncounted: Case, checkout: Checkout, found: Rounds) -> dict[str, Any]:
    timings, others = found[checkout.name, case.name], found[checkout.name, uncounted.name]
    return {
        "checkout": checkout.name,
        "scheduling": case.name.partition(",")[0],
        "books": case.settings.books,
        "step_ms": middle([step_ms(timing) for timing in timings]),
        "by_uncounted": ratio([step_ms(timing) for timing in timings], [step_ms(timing) for timing in others]),
        "core_ms": middle([core_ms(timing) for timing in timings]),
        "core_by_uncounted": ratio([core_ms(timing) for timing in timings], [core_ms(timing) for timing in others]),
    }
