"""The figures of step logs: where the time of their steps went, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_tt.observe.steps import Log, Step

__all__ = ["PhaseFigures", "Stall", "Summary", "summarize"]

KV_FULL = 0.95
"""From this share on requests wait for pages rather than for slots."""


@dataclass(kw_only=True, slots=True)
class PhaseFigures:
    """The steps of one phase."""

    steps: int = 0
    ms: float = 0.0
    wait_ms: float = 0.0
    tokens: int = 0

    def add(self, step: Step) -> None:
        self.steps += 1
        self.ms += step.ms
        self.wait_ms += step.wait_ms
        self.tokens += step.tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Stall:
    """A prefill step that requests waited for to decode."""

    ms: float
    requests: tuple[str, ...]
    """Those that were prefilled."""
    stalled: int
    """How many waited."""


@dataclass(kw_only=True, slots=True)
class Summary:
    """Sums over all steps; several engines' are added, and their times with them."""

    engines: int = 0
    span_s: float = 0.0
    """From the first step's beginning to the last one's end."""
    prefill: PhaseFigures = field(default_factory=PhaseFigures)
    decode: PhaseFigures = field(default_factory=PhaseFigures)
    stalls: int = 0
    stall_ms: float = 0.0
    longest_stall: Stall | None = None
    host_steps: int = 0
    """Steps that the device did not sample alone although it samples."""
    host_ms: float = 0.0
    host_reasons: dict[str, int] = field(default_factory=dict)
    split_steps: int = 0
    """Those of them in which the device sampled the other rows."""
    device_steps: int = 0
    """Steps that the device sampled, alone or with the host."""
    drains: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    recomputed_tokens: int = 0
    lane_rows: list[list[float]] = field(default_factory=list)
    """By engine and lane: the mean rows of its decode steps."""
    uneven: float = 0.0
    """Share of the time in which a lane had requests waiting while another ran fewer and had none waiting."""
    waiting_share: float = 0.0
    """Share of the time in which requests waited while there were pages."""
    kv_mean: float = 0.0
    """Of the fullest lane."""
    kv_max: float = 0.0
    damaged: int = 0
    first_damaged: str = ""

    @property
    def steps(self) -> int:
        return self.prefill.steps + self.decode.steps

    @property
    def ms(self) -> float:
        return self.prefill.ms + self.decode.ms

    @property
    def stall_share(self) -> float:
        """Of the time in which requests were decoding or waited to."""
        return share(self.stall_ms, self.stall_ms + self.decode.ms)


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def summarize(logs: Sequence[Log]) -> Summary:
    """The figures of engines that ran at the same time."""
    summary = Summary(engines=len(logs), damaged=sum(log.damaged for log in logs))
    summary.first_damaged = next((log.first_damaged for log in logs if log.damaged), "")
    steps = [step for log in logs for step in log.steps]
    summary.span_s = max(step.start + step.ms / 1000 for step in steps) - min(step.start for step in steps)
    reasons: Counter[str] = Counter()
    drains: Counter[str] = Counter()
    for step in steps:
        (summary.decode if step.decodes else summary.prefill).add(step)
        _add_stall(summary, step)
        _add_sampling(summary, step, reasons)
        if step.drain:
            drains[step.drain] += 1
        summary.preemptions += len(step.preempted)
        summary.recomputed_tokens += step.recomputed
    summary.host_reasons, summary.drains = dict(reasons.most_common()), dict(drains.most_common())
    summary.lane_rows = [_lane_rows(log) for log in logs]
    _add_load(summary, steps)
    return summary


def _add_stall(summary: Summary, step: Step) -> None:
    if not step.stalled:
        return
    summary.stalls += 1
    summary.stall_ms += step.ms
    if summary.longest_stall is None or step.ms > summary.longest_stall.ms:
        summary.longest_stall = Stall(ms=step.ms, requests=step.requests, stalled=step.stalled)


def _add_sampling(summary: Summary, step: Step, reasons: Counter[str]) -> None:
    summary.device_steps += step.sampled in ("device", "split")
    if step.host:
        summary.host_steps += 1
        summary.split_steps += step.sampled == "split"
        summary.host_ms += step.ms
        reasons.update(step.host)


def _lane_rows(log: Log) -> list[float]:
    decodes = [step for step in log.steps if step.decodes]
    return [
        round(share(sum(step.rows[lane] for step in decodes if lane < len(step.rows)), len(decodes)), 2)
        for lane in range(log.lanes)
    ]


def _add_load(summary: Summary, steps: Iterable[Step]) -> None:
    uneven = waiting = kv = 0.0
    for step in steps:
        fullest = max(step.kv)
        kv += fullest * step.ms
        summary.kv_max = max(summary.kv_max, fullest)
        if not any(step.waiting):
            continue
        if fullest < KV_FULL:
            waiting += step.ms
        lanes = list(zip(step.running, step.waiting, strict=True))
        short = [running for running, queued in lanes if not queued]
        long = [running for running, queued in lanes if queued]
        if short and min(short) < max(long):
            uneven += step.ms
    total = summary.ms
    summary.uneven, summary.waiting_share, summary.kv_mean = (
        share(uneven, total),
        share(waiting, total),
        share(kv, total),
    )
