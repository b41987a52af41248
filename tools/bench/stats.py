"""What repeated measurements come to. Other work on the machine only ever adds time, hence medians throughout."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.bench.settings import Timing

__all__ = ["above", "blocks", "core_ms", "counted", "cpu_ms", "efficiency", "middle", "ratio", "step_ms"]

BLOCK = 20
"""Steps whose mean is one value: what is done only in some steps counts, what a stall adds does not."""


def blocks(values: Sequence[float], size: int = BLOCK) -> list[float]:
    """Means of ``size`` values each, in order; what is left over is dropped unless it is all there is."""
    if len(values) < size:
        return [sum(values) / len(values)]
    return [sum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def step_ms(timing: Timing) -> float:
    """A step of the engine and its client."""
    return median(blocks(timing.loop)) / 1e6


def core_ms(timing: Timing) -> float:
    """A step of the engine core alone."""
    return median(blocks(timing.core)) / 1e6


def cpu_ms(timing: Timing) -> float:
    """CPU time of a step, over all threads."""
    return timing.cpu / timing.steps / 1e6


def efficiency(timing: Timing) -> float:
    """The share of all the time, stalls included, in which the device computed."""
    return timing.device / sum(timing.loop)


def counted(timings: Sequence[Timing], family: str) -> dict[str, float]:
    """How often a step the worker counted each reason of a family of its counters; the most frequent first."""
    total: Counter[str] = sum((Counter(timing.counters.get(family, {})) for timing in timings), Counter())
    steps = sum(timing.steps for timing in timings)
    return {reason: count / steps for reason, count in total.most_common()}


def middle(values: Sequence[float]) -> float:
    return median(values)


def above(values: Sequence[float], others: Sequence[float]) -> float:
    """How much ``values`` are above ``others``, both by round: the median over the rounds."""
    return median(value - other for value, other in zip(values, others, strict=True))


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """``values`` by ``others``, both by round: the median over the rounds."""
    return median(value / other for value, other in zip(values, others, strict=True))
