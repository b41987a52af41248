"""A sampling profiler of this process's main thread: who was on the stack when CPU time passed."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["OURS", "Sampler", "place"]

INTERVAL = 0.001
"""Seconds of CPU time; the kernel may make it a tick, 4 ms on most."""
OURS = "vllm_tt/"


class Sampler:
    """Counts samples by function: those on the top of the stack, and ours that were nearest to it.

    Time spent in C is its caller's. The signal is only seen between two bytecodes, which suits long calls ill: a
    function with one long call looks as long as it is, but the line may be the one after.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.top: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        """By the innermost line of ours; what was not called by ours is left out."""

    def __enter__(self) -> Sampler:
        self._before = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        return self

    def __exit__(self, *raised: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        self.samples += 1
        if frame is not None:
            self.top[place(frame)] += 1
        while frame is not None:
            name = place(frame)
            if name.startswith(OURS):
                self.ours[f"{name}:{frame.f_lineno}"] += 1
                return
            frame = frame.f_back


def place(frame: FrameType) -> str:
    """``vllm_tt/worker/forward.py decode``: the file from its package on, and the function."""
    code = frame.f_code
    parts = code.co_filename.split("/")
    package = max((i for i, part in enumerate(parts) if part in ("vllm_tt", "vllm", "torch")), default=len(parts) - 1)
    return f"{'/'.join(parts[package:])} {code.co_qualname}"
