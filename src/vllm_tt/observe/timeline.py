"""Steps as blocks on a time axis, few enough to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tt.observe.steps import Log, Step

__all__ = ["Block", "Kind", "Pause", "Timeline", "Track", "timeline"]

PAUSE_S = 2.0
"""Longer times without any step are cut out of the axis ..."""
PAUSE_SHOWN_S = 0.5
"""... and this long on it."""


class Kind(IntEnum):
    """What is told apart by colour."""

    DECODE = 0
    DECODE_HOST = 1
    PREFILL = 2
    STALL = 3

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Kind.DECODE: "decode",
    Kind.DECODE_HOST: "decode, sampled on the host",
    Kind.PREFILL: "prefill",
    Kind.STALL: "prefill that decodes waited for",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A step, or those of a kind among successive ones."""

    kind: Kind
    start: float
    """Seconds on the axis."""
    seconds: float
    steps: int
    first: int
    """Number of its first step."""
    rows: tuple[float, ...]
    """Mean rows of each lane."""
    tokens: int
    wait_s: float
    stalled: int
    """The most requests that waited for one of its steps."""
    requests: tuple[str, ...]
    notes: tuple[str, ...]
    """Reasons: of host sampling and of drains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """A time without steps, cut out."""

    start: float
    seconds: float
    """On the clock; on the axis it takes ``PAUSE_SHOWN_S``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """One engine's blocks, in order."""

    name: str
    lanes: int
    most_rows: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    tracks: tuple[Track, ...]
    pauses: tuple[Pause, ...]
    began: float
    """Seconds of the epoch at 0 of the axis."""
    seconds: float
    """Length of the axis."""
    steps: int
    joined: int
    """How many successive steps are drawn together, with a block for each kind; 1: every step is a block."""


def timeline(logs: Sequence[Log], most: int) -> Timeline:
    """The steps of all logs in at most ``most`` blocks: as many neighbours are drawn together as that takes."""
    began = min(step.start for log in logs for step in log.steps)
    pauses = tuple(_pauses(logs, began))
    steps = sum(len(log.steps) for log in logs)
    joined = max(1, steps // most)
    while True:
        tracks = tuple(_track(log, began, pauses, joined) for log in logs)
        if joined > steps or sum(len(track.blocks) for track in tracks) <= most:
            break
        joined *= 2
    return Timeline(
        tracks=tracks,
        pauses=pauses,
        began=began,
        seconds=max(block.start + block.seconds for track in tracks for block in track.blocks),
        steps=steps,
        joined=joined,
    )


def kind_of(step: Step) -> Kind:
    if step.decodes:
        return Kind.DECODE_HOST if step.host else Kind.DECODE
    return Kind.STALL if step.stalled else Kind.PREFILL


def _pauses(logs: Sequence[Log], began: float) -> Iterator[Pause]:
    """Times on the axis, that is behind the cuts of the pauses before."""
    cut, end = 0.0, 0.0
    for start, stop in sorted(
        (step.start - began, step.start - began + step.ms / 1000) for log in logs for step in log.steps
    ):
        if (gap := start - end) > PAUSE_S:
            yield Pause(start=end - cut, seconds=gap)
            cut += gap - PAUSE_SHOWN_S
        end = max(end, stop)


def _track(log: Log, began: float, pauses: Sequence[Pause], joined: int) -> Track:
    blocks, cut, ahead, lanes = [], 0.0, 0, log.lanes
    for steps in _runs(log.steps, joined):
        start = steps[0].start - began
        while ahead < len(pauses) and start - cut > pauses[ahead].start + PAUSE_SHOWN_S:
            cut += pauses[ahead].seconds - PAUSE_SHOWN_S
            ahead += 1
        at = start - cut
        for members in _by_kind(steps):
            blocks.append(_block(members, at, lanes))
            at += blocks[-1].seconds
    most = max(max(step.rows) for step in log.steps)
    return Track(name=log.name, lanes=lanes, most_rows=most, blocks=tuple(blocks))


def _runs(steps: Sequence[Step], joined: int) -> Iterator[list[Step]]:
    """Successive steps without a pause among them, at most ``joined`` together."""
    run: list[Step] = []
    for step in steps:
        if run and (len(run) == joined or step.start - run[-1].start - run[-1].ms / 1000 > PAUSE_S):
            yield run
            run = []
        run.append(step)
    yield run


def _by_kind(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of each kind that there is, for blocks side by side: what each took stays to be seen."""
    kinds: dict[Kind, list[Step]] = {}
    for step in steps:
        kinds.setdefault(kind_of(step), []).append(step)
    return list(kinds.values())


def _block(steps: Sequence[Step], start: float, lanes: int) -> Block:
    rows = tuple(
        round(sum(step.rows[lane] for step in steps if lane < len(step.rows)) / len(steps), 1) for lane in range(lanes)
    )
    notes = (f"host: {reason}" for step in steps for reason in step.host)
    drains = (f"drained: {step.drain}" for step in steps if step.drain)
    return Block(
        kind=kind_of(steps[0]),
        start=start,
        seconds=sum(step.ms for step in steps) / 1000,
        steps=len(steps),
        first=steps[0].step,
        rows=rows,
        tokens=sum(step.tokens for step in steps),
        wait_s=sum(step.wait_ms for step in steps) / 1000,
        stalled=max(step.stalled for step in steps),
        requests=tuple(dict.fromkeys(name for step in steps for name in step.requests)),
        notes=tuple(dict.fromkeys([*notes, *drains])),
    )
