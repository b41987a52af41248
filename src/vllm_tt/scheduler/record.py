"""What is noted of one step while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_tt.telemetry import Counters

__all__ = ["StepRecord"]


@dataclass(kw_only=True, slots=True, eq=False)
class StepRecord:
    """A step from its scheduling until its results are applied: the scheduler opens it, the worker notes its part."""

    counters: Counters
    """The engine's."""
    started: float = 0.0
    """Seconds of `time.perf_counter` when its scheduling began."""
    stalled: int = 0
    """Requests that wait to decode while it prefills."""
    recomputed: int = 0
    """Tokens of it that had been computed before their request was preempted."""
    preempted: tuple[str, ...] = ()
    """Requests that gave their slots up for it."""
    sampled: str = ""
    """Where its tokens are sampled: device, host or split."""
    reasons: tuple[str, ...] = ()
    """Why the device does not sample them alone."""
    drain: str = ""
    """Why the steps before it were read first."""
    waited: float = 0.0
    """Seconds that the host waited for its output."""
    ended: float = 0.0
    """Seconds of `time.perf_counter` when its tokens were there: with asynchronous scheduling its results are applied
    after the next step was submitted, which a prefill is computed in; 0 if the worker does not say.
    """
