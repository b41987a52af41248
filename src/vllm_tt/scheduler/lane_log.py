"""The lanes' own figures, which vLLM's statistics have only as sums: a line in the log now and then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LaneFigures", "LaneLog"]

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneFigures:
    """One lane between two steps."""

    running: int
    waiting: int
    kv_cache_usage: float
    """Share of its pages that requests hold."""

    def __str__(self) -> str:
        return f"{self.running}+{self.waiting} {self.kv_cache_usage:.0%}"


class LaneLog:
    """Logs the lanes at intervals in which there is something to tell."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``interval``: seconds between two lines."""
        self._interval, self._clock = interval, clock
        self._next = clock() + interval
        self._moved = self._told = 0

    def moved(self, requests: int) -> None:
        """So many requests changed lanes."""
        self._moved += requests

    def note(self, figures: Callable[[], Sequence[LaneFigures]]) -> None:
        """A step has ended; ``figures`` is called when a line is due."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._interval
        lanes = figures()
        log.info(
            "Lanes, each with running+waiting requests and its KV cache's use: %s; %d waiting requests changed lanes",
            ", ".join(map(str, lanes)),
            self._moved - self._told,
        )
        self._told = self._moved
