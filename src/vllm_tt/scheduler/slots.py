"""Device slots: a request holds one from its first step until it finishes or is preempted (D1)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

__all__ = ["NoFreeSlot", "SlotPool", "SlotPoolBroken"]


class NoFreeSlot(TTError):
    """Request {request!r} was admitted although all {size} slots are held, by {holders}."""


class SlotPoolBroken(TTError):
    """Slots {first} to {last} do not add up: held {held}, free {free}."""


class SlotPool:
    """The slots ``first`` to ``first + size - 1``; the lowest free one is given out first."""

    def __init__(self, size: int, first: int = 0) -> None:
        self._all = range(first, first + size)
        self._free = list(self._all)
        self._held: dict[str, int] = {}

    def __getitem__(self, req_id: str) -> int:
        return self._held[req_id]

    def __contains__(self, req_id: object) -> bool:
        return req_id in self._held

    def __len__(self) -> int:
        """Slots held."""
        return len(self._held)

    def take(self, req_id: str) -> int:
        """Give ``req_id`` a slot that it keeps until it is released."""
        if not self._free:
            raise NoFreeSlot(request=req_id, size=len(self._all), holders=", ".join(self._held))
        slot = self._held[req_id] = heapq.heappop(self._free)
        return slot

    def keep_only(self, running: AbstractSet[str]) -> tuple[int, ...]:
        """Release the slots of every request that is not in ``running``; returns them."""
        gone = [req_id for req_id in self._held if req_id not in running]
        released = tuple(self._held.pop(req_id) for req_id in gone)
        for slot in released:
            heapq.heappush(self._free, slot)
        return released

    def check(self) -> None:
        """Raise unless every slot is either free or held by exactly one request."""
        if sorted([*self._free, *self._held.values()]) != list(self._all):
            raise SlotPoolBroken(
                first=self._all.start, last=self._all.stop - 1, held=self._held, free=sorted(self._free)
            )
