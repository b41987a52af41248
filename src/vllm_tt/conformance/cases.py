"""Small workloads for an adapter, each able to say what would be a smaller one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Case", "RowSpec", "smallest"]

_TRIES = 40


@dataclass(frozen=True, slots=True)
class RowSpec:
    """One request: its slot and how long its prompt is."""

    slot: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Rows that are prefilled together, then decoded together."""

    rows: tuple[RowSpec, ...]
    steps: int = 0
    """Decode steps after the prefill."""
    permuted: bool = False
    """Whether pages are handed out in a shuffled order rather than in turn."""
    chunk: int | None = None
    """Prefill at most so many tokens at once."""

    def __str__(self) -> str:
        parts = [" and ".join(f"{_count(row.length, 'token')} in slot {row.slot}" for row in self.rows)]
        if self.chunk:
            parts.append(f"chunks of {self.chunk}")
        if self.steps:
            parts.append(_count(self.steps, "decode step"))
        if self.permuted:
            parts.append("pages permuted")
        return ", ".join(parts)

    def smaller(self) -> Iterator[Case]:
        """Cases with less in them, the boldest first."""
        if len(self.rows) > 1:
            for i in range(len(self.rows)):
                yield replace(self, rows=self.rows[:i] + self.rows[i + 1 :])
        if self.permuted:
            yield replace(self, permuted=False)
        for steps in {0, self.steps // 2, self.steps - 1}:
            if 0 <= steps < self.steps:
                yield replace(self, steps=steps)
        for i, row in enumerate(self.rows):
            for length in sorted({1, row.length // 2, row.length - row.length // 4, row.length - 1}):
                if 0 < length < row.length:
                    yield self._with(i, replace(row, length=length))
        taken = {row.slot for row in self.rows}
        for i, row in enumerate(self.rows):
            free = next((slot for slot in range(row.slot) if slot not in taken), None)
            if free is not None:
                yield self._with(i, replace(row, slot=free))

    def _with(self, index: int, row: RowSpec) -> Case:
        return replace(self, rows=(*self.rows[:index], row, *self.rows[index + 1 :]))

    def prompt(self, index: int, vocab_size: int) -> list[int]:
        """The tokens of a row: its prompt and what is decoded after it. They depend on the row's place alone."""
        row = self.rows[index]
        rng = np.random.default_rng(1000 + index)
        low = min(16, vocab_size // 2)
        return rng.integers(low, vocab_size, 4096)[: row.length + self.steps].tolist()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def smallest(case: Case, failing: T, run: Callable[[Case], T | None]) -> tuple[Case, T]:
    """The smallest case at hand that ``run`` still gives a fault for, and that fault."""
    tries = 0
    going = True
    while going:
        going = False
        for candidate in case.smaller():
            tries += 1
            if tries > _TRIES:
                return case, failing
            if (found := run(candidate)) is not None:
                case, failing, going = candidate, found, True
                break
    return case, failing
