"""What a server did between two readings of its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt import telemetry
from vllm_tt.telemetry import PREFIX

if TYPE_CHECKING:
    from vllm_tt.observe.scrape import Reading
    from vllm_tt.telemetry import Family, Gauge

__all__ = ["Activity", "Lane", "Restarted", "activity"]

_PHASES = ("prefill", "decode")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A lane of an engine, now."""

    engine: str
    lane: str
    slots: int
    running: int
    waiting: int
    kv: float
    """Share of its pages that requests hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """Rates are by the second between the readings; shares are of the engines' time in steps between them."""

    seconds: float
    models: tuple[str, ...]
    engines: int
    running: int
    waiting: int
    kv: float
    """Mean over the engines."""
    prompt_tokens: float
    generated_tokens: float
    steps: dict[str, float]
    """By phase, per second."""
    step_ms: dict[str, float]
    """Mean by phase."""
    time: dict[str, float]
    """Share of the clock, of all engines, by phase; the rest they were idle."""
    wait: float
    """Share of the time in steps that was spent waiting for the model's output."""
    stall_share: float
    """Of decode time and stalls together."""
    stalls: int
    host: dict[str, int]
    """Steps sampled on the host, by reason."""
    drains: dict[str, int]
    preemptions: int
    recomputed_tokens: int
    lanes: tuple[Lane, ...]


class Restarted(Exception):
    """Counts are smaller than they were."""


def activity(before: Reading, after: Reading) -> Activity:
    """What happened from ``before`` to ``after``; raises ``Restarted`` where these are of two servers."""
    change = _Change(before, after)
    seconds = after.at - before.at
    engines = max(1, len(after.by(_gauge(telemetry.SLOTS), "engine")))
    busy = {phase: change.of(telemetry.STEP_TIME, phase) for phase in _PHASES}
    steps = {phase: change.steps(phase) for phase in _PHASES}
    stalled = change.of(telemetry.DECODE_STALL)
    wait = sum(change.of(telemetry.DEVICE_WAIT, phase) for phase in _PHASES)
    return Activity(
        seconds=seconds,
        models=tuple(sorted({name for (name,) in after.by(_gauge(telemetry.SLOTS), "model_name")})),
        engines=engines,
        running=round(after.total("vllm:num_requests_running")),
        waiting=round(after.total("vllm:num_requests_waiting")),
        kv=after.total("vllm:kv_cache_usage_perc") / engines,
        prompt_tokens=change.total("vllm:prompt_tokens_total") / seconds,
        generated_tokens=change.total("vllm:generation_tokens_total") / seconds,
        steps={phase: steps[phase] / seconds for phase in _PHASES},
        step_ms={phase: _share(busy[phase], steps[phase]) * 1000 for phase in _PHASES},
        time={phase: min(1.0, busy[phase] / seconds / engines) for phase in _PHASES},
        wait=min(1.0, _share(wait, sum(busy.values()))),
        stall_share=_share(stalled, stalled + busy["decode"]),
        stalls=round(change.of(telemetry.STALLS)),
        host=change.reasons(telemetry.HOST_SAMPLING),
        drains=change.reasons(telemetry.DRAINS),
        preemptions=round(change.of(telemetry.PREEMPTIONS)),
        recomputed_tokens=round(change.of(telemetry.RECOMPUTED_TOKENS)),
        lanes=_lanes(after),
    )


class _Change:
    """Differences of counters."""

    def __init__(self, before: Reading, after: Reading) -> None:
        self._before, self._after = before, after

    def total(self, name: str) -> float:
        return self._grown(self._after.total(name) - self._before.total(name))

    def by_label(self, family: Family) -> dict[str, float]:
        name = f"{PREFIX}{family.name}_total"
        before = self._before.by(name, family.label)
        return {
            key[0]: self._grown(value - before.get(key, 0.0))
            for key, value in self._after.by(name, family.label).items()
        }

    def of(self, family: Family, reason: str = "") -> float:
        if not family.label:
            return self.total(f"{PREFIX}{family.name}_total")
        return self.by_label(family).get(reason, 0.0)

    def steps(self, phase: str) -> float:
        return sum(value for kind, value in self.by_label(telemetry.STEPS).items() if kind.startswith(phase))

    def reasons(self, family: Family) -> dict[str, int]:
        counts = {reason: round(value) for reason, value in self.by_label(family).items() if round(value)}
        return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))

    @staticmethod
    def _grown(difference: float) -> float:
        if difference < 0:
            raise Restarted
        return difference


def _gauge(gauge: Gauge) -> str:
    return PREFIX + gauge.name


def _lanes(reading: Reading) -> tuple[Lane, ...]:
    figures = [reading.by(_gauge(gauge), "engine", "lane") for gauge in telemetry.GAUGES]
    slots, running, waiting, kv = figures
    return tuple(
        Lane(
            engine=key[0],
            lane=key[1],
            slots=round(slots[key]),
            running=round(running.get(key, 0.0)),
            waiting=round(waiting.get(key, 0.0)),
            kv=kv.get(key, 0.0),
        )
        for key in sorted(slots, key=lambda key: tuple(int(part) if part.isdecimal() else 0 for part in key))
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
