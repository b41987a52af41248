"""Lane balance: a request that its lane cannot start goes to a lane that can.

A request is bound to a lane when it arrives, before anyone knows how long the others there will run.
Until it has started it holds neither slot nor pages, and nothing of it is on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm.v1.request import Request

__all__ = ["Balanced", "rebind"]


class Balanced(Protocol):
    """What balancing needs of a lane's scheduler."""

    def has_backlog(self) -> bool:
        """Whether requests wait that its last prefill pass, or its slots, left out."""
        ...

    def next_unstarted(self) -> Request | None:
        """The first of them that another lane could start in its place."""
        ...

    def spare_slots(self) -> int:
        """Slots that are left when all that wait have one."""
        ...

    def has_room_for(self, request: Request) -> bool: ...

    def withdraw(self, request: Request) -> None: ...

    def accept(self, request: Request) -> None: ...


L = TypeVar("L", bound=Balanced)


def rebind(lanes: Sequence[L]) -> Iterator[tuple[Request, L]]:
    """Move requests from lanes with a backlog to lanes without, the longest waiting first.

    Yields each with its new lane. A lane with a backlog takes none, so no request is moved to and fro.
    """
    busy = [lane for lane in lanes if lane.has_backlog()]
    if not busy or len(busy) == len(lanes):
        return
    others = [lane for lane in lanes if lane not in busy]
    while takers := [lane for lane in others if lane.spare_slots() > 0]:
        waiting = [(request, lane) for lane in busy if (request := lane.next_unstarted()) is not None]
        if not waiting:
            return
        request, giver = min(waiting, key=lambda found: found[0].arrival_time)
        taker = max(
            (lane for lane in takers if lane.has_room_for(request)), key=lambda lane: lane.spare_slots(), default=None
        )
        if taker is None:
            return
        giver.withdraw(request)
        taker.accept(request)
        yield request, taker
