"""A device that computes nothing and takes its time over it."""

from __future__ import annotations

import time

__all__ = ["Device"]

SPIN_NS = 150_000
"""A sleep may end this late: the last of a wait is spent looking at the clock."""


class Device:
    """A queue of steps on the clock of `time.perf_counter_ns`; submitting one does not wait.

    A step begins when it is submitted or, while the device is busy, when the step before it ends.
    """

    def __init__(self, step_ms: float = 0.0) -> None:
        self.step_ns = round(step_ms * 1e6)
        """How long the next steps take."""
        self.free_at = 0
        self.busy_ns = 0
        """The time of all steps so far."""
        self.spun_ns = 0
        """CPU time that waiting took: none of the host's own work."""

    def submit(self) -> int:
        """Enqueue a step; the time at which it ends."""
        self.free_at = max(self.free_at, time.perf_counter_ns()) + self.step_ns
        self.busy_ns += self.step_ns
        return self.free_at

    def drain(self) -> None:
        """Return when all steps so far have ended."""
        self.wait(self.free_at)

    def wait(self, end: int) -> None:
        """Return when the clock shows ``end``, or at once if it has."""
        left = end - time.perf_counter_ns()
        if left <= 0:
            return
        began = time.thread_time_ns()
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)
        while time.perf_counter_ns() < end:
            pass
        self.spun_ns += time.thread_time_ns() - began
