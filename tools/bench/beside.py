"""Steady decoding of one engine beside that of others: times, and their ratio to the first engine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tools.bench.plan import measure
from tools.bench.settings import Steady
from tools.bench.stats import core_ms, cpu_ms, middle, ratio, step_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.plan import Case
    from tools.bench.rig import Checkout
    from tools.bench.settings import Timing

__all__ = ["Beside"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What is measured; a derived class says which engines."""

    first: ClassVar[str]
    """What the first engine is called in the names of ratios."""

    model: str
    rows: int
    modes: Sequence[str]
    """``async``, ``sync``."""
    rounds: int
    steps: int
    """A round."""

    def cases(self, mode: str) -> Sequence[Case]:
        """The engines of a way of scheduling, the first one first; names begin with the mode."""
        raise NotImplementedError

    def told(self, case: Case) -> dict[str, Any]:
        """What tells a case apart from the others, for its record."""
        raise NotImplementedError

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each way of scheduling, case and checkout."""
        asked = Steady(rows=self.rows, steps=self.steps)
        for mode in self.modes:
            cases = self.cases(mode)
            found = measure(cases, checkouts, self.rounds, lambda rig, _: rig.steady(asked), progress)
            for case in cases:
                for one in checkouts:
                    facts = {"checkout": one.name, "scheduling": mode, **self.told(case)}
                    yield facts | self._times(found[one.name, case.name], found[one.name, cases[0].name])

    def _times(self, timings: Sequence[Timing], others: Sequence[Timing]) -> dict[str, float]:
        steps, cores = [step_ms(timing) for timing in timings], [core_ms(timing) for timing in timings]
        return {
            "step_ms": middle(steps),
            f"by_{self.first}": ratio(steps, [step_ms(timing) for timing in others]),
            "core_ms": middle(cores),
            f"core_by_{self.first}": ratio(cores, [core_ms(timing) for timing in others]),
            "cpu_ms": middle([cpu_ms(timing) for timing in timings]),
        }
