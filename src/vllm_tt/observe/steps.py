"""Step logs as records: what ``tt.step_log`` wrote, without the lines that are damaged."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Log", "NoSteps", "Step", "read"]

PHASES = ("prefill", "decode")


class NoSteps(TTError):
    """{path} has no steps{found}: serve with --additional-config.tt.step_log FILE, send requests, and name
    that file.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of an engine."""

    step: int
    start: float
    """Seconds of the epoch."""
    ms: float
    """From the end of the step before, or from its own scheduling after a pause, until its results were applied."""
    wait_ms: float
    """The part of it that the host waited for the model's output."""
    phase: str
    rows: tuple[int, ...]
    """Rows of each lane."""
    tokens: int
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    kv: tuple[float, ...]
    sampled: str
    requests: tuple[str, ...] = ()
    """Of a prefill."""
    stalled: int = 0
    """Requests that waited to decode."""
    recomputed: int = 0
    preempted: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    """Why the device did not sample it alone."""
    drain: str = ""
    """Why the step before was read first."""

    @property
    def decodes(self) -> bool:
        return self.phase == "decode"


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """The steps of one engine, in order."""

    name: str
    steps: tuple[Step, ...]
    damaged: int
    """Lines that are no steps."""
    first_damaged: str = ""
    """FILE:LINE of the first of them."""

    @property
    def lanes(self) -> int:
        return max(len(step.rows) for step in self.steps)


def read(path: Path) -> Log:
    """The log of ``path``, behind the older half of it in ``path.1`` where there is one.

    The fields of a damaged line are not guessed: the line is left out and counted.
    """
    older = path.with_name(f"{path.name}.1")
    files = [older, path] if older.exists() else [path]
    steps: list[Step] = []
    damaged: list[str] = []
    lines = 0
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            lines += 1
            step = _step(line)
            if step is None:
                damaged.append(f"{file}:{number}")
            else:
                steps.append(step)
    if not steps:
        found = f" ({lines} lines of something else)" if lines else " (it is empty)"
        raise NoSteps(path=path, found=found)
    return Log(name=str(path), steps=tuple(steps), damaged=len(damaged), first_damaged=damaged[0] if damaged else "")


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from (line for line in file if line.strip())


def _step(line: str) -> Step | None:
    try:
        return _checked(json.loads(line))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _checked(record: Any) -> Step:
    ms, phase = _number(record["ms"]), record["phase"]
    lanes = len(record["rows"])
    if phase not in PHASES or not lanes:
        raise ValueError
    return Step(
        step=int(_number(record["step"])),
        start=_number(record["time"]) - ms / 1000,
        ms=ms,
        wait_ms=_number(record["wait_ms"]),
        phase=phase,
        rows=_counts(record["rows"], lanes),
        tokens=int(_number(record["tokens"])),
        running=_counts(record["running"], lanes),
        waiting=_counts(record["waiting"], lanes),
        kv=tuple(map(_number, _list(record["kv"], lanes))),
        sampled=_text(record["sampled"]),
        requests=tuple(map(_text, _list(record.get("requests", [])))),
        stalled=int(_number(record.get("stalled", 0))),
        recomputed=int(_number(record.get("recomputed", 0))),
        preempted=tuple(map(_text, _list(record.get("preempted", [])))),
        host=tuple(map(_text, _list(record.get("host", [])))),
        drain=_text(record.get("drain", "")),
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(value: Any, length: int | None = None) -> Iterable[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError
    return value


def _counts(value: Any, lanes: int) -> tuple[int, ...]:
    return tuple(int(_number(one)) for one in _list(value, lanes))
