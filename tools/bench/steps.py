"""Steady decoding: what a step takes beside the device's time, and beside the same engine with an idle worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.plan import Case, measure
from tools.bench.report import Column, milliseconds, percent, reasons, times
from tools.bench.settings import Settings, Steady
from tools.bench.stats import core_ms, counted, cpu_ms, efficiency, middle, ratio, step_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.plan import Rounds
    from tools.bench.rig import Checkout

__all__ = ["COLUMNS", "Steps"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("rows", "rows"),
    Column("scheduling", "scheduling", left=True),
    Column("device", "device", left=True),
    Column("step, ms", "step_ms", milliseconds),
    Column("by floor", "by_floor", times),
    Column("core, ms", "core_ms", milliseconds),
    Column("by floor", "core_by_floor", times),
    Column("overlap", "efficiency", percent),
    Column("CPU, ms", "cpu_ms", milliseconds),
    Column("drains a step", "drains", reasons, left=True),
    Column("by this one", "by_here", times),
)
FLOOR = "floor"


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """What is measured."""

    model: str
    sizes: Sequence[int]
    device_ms: Sequence[float]
    modes: Sequence[str]
    """``async``, ``sync``."""
    rounds: int
    steps: int
    """A round."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each batch size, way of scheduling and device time. One size's engines run at a time."""
        for rows in self.sizes:
            cases = [case for mode in self.modes for case in self._cases(rows, mode)]
            found = measure(
                cases,
                checkouts,
                self.rounds,
                lambda rig, case: rig.steady(Steady(rows=case.settings.rows, steps=self.steps, **case.ask)),
                progress,
            )
            yield from (_record(case, one, checkouts[0], found) for case in cases for one in checkouts)

    def _cases(self, rows: int, mode: str) -> Iterator[Case]:
        settings = Settings(model=self.model, rows=rows, asynchronous=mode == "async")
        yield Case(name=_name(settings, FLOOR), settings=settings, ask={"floor": True})
        for ms in self.device_ms:
            yield Case(name=_name(settings, f"{ms:g} ms"), settings=settings, ask={"device_ms": ms})


def _name(settings: Settings, device: str) -> str:
    return f"{settings.rows} rows, {'async' if settings.asynchronous else 'sync'}, {device}"


def _record(case: Case, checkout: Checkout, here: Checkout, found: Rounds) -> dict[str, Any]:
    timings, floors = found[checkout.name, case.name], found[checkout.name, _name(case.settings, FLOOR)]
    walls = [step_ms(timing) for timing in timings]
    record = {
        "checkout": checkout.name,
        "rows": case.settings.rows,
        "scheduling": "async" if case.settings.asynchronous else "sync",
        "device": case.name.rpartition(", ")[2],
        "step_ms": middle(walls),
        "core_ms": middle([core_ms(timing) for timing in timings]),
        "cpu_ms": middle([cpu_ms(timing) for timing in timings]),
        "drains": counted(timings, "drains"),
    }
    if case.ask.get("device_ms") == 0:
        record["by_floor"] = ratio(walls, [step_ms(timing) for timing in floors])
        record["core_by_floor"] = ratio([core_ms(t) for t in timings], [core_ms(t) for t in floors])
    elif "device_ms" in case.ask:
        record["efficiency"] = middle([efficiency(timing) for timing in timings])
    if checkout is not here:
        record["by_here"] = ratio(walls, [step_ms(timing) for timing in found[here.name, case.name]])
    return record
