"""What layers carry from token to token beside the KV cache, by device slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm_tt.host.step import Step

__all__ = ["Run", "SlotState", "runs"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Run:
    """The rows of a step that have the same number of tokens: n rows of m."""

    tokens: torch.Tensor
    """Their places in the flat batch, int64 [n, m]."""
    slots: torch.Tensor
    """int64 [n]"""
    begins: torch.Tensor
    """Which rows are at the start of their sequence, bool [n]; the others go on with what their slot holds."""


def runs(step: Step) -> list[Run]:
    """All rows of ``step``: the decoding slots in one run, prompts by their length."""
    firsts = torch.cat((torch.zeros(1, dtype=torch.int64), step.last[:-1] + 1))
    counts = step.last + 1 - firsts
    begins = step.positions[firsts] == 0
    found = []
    for count in counts.unique().tolist():
        rows = (counts == count).nonzero().flatten()
        tokens = firsts[rows, None] + torch.arange(count)
        found.append(Run(tokens=tokens, slots=step.slots[rows], begins=begins[rows]))
    return found


class SlotState:
    """One tensor for each slot; only the slots of a run are read and written."""

    def __init__(self, slots: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._rows = torch.zeros((slots, *shape), dtype=dtype)

    def read(self, run: Run) -> torch.Tensor:
        """The state before each row [n, ...]: zeros for rows that begin, whatever their slot held before."""
        rows = self._rows[run.slots]
        rows[run.begins] = 0
        return rows

    def write(self, run: Run, rows: torch.Tensor) -> None:
        """Keep the state after each row [n, ...]."""
        self._rows[run.slots] = rows.to(self._rows.dtype)
