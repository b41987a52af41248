"""What the scheduler tells the worker about one step: its phase and its rows (design decision D2).

Nobody downstream infers the phase from token counts: the last chunk of a resumed prompt is one
token long and looks like a decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.core.sched.output import SchedulerOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vllm_tt.scheduler.record import StepRecord

__all__ = ["EMPTY_PLAN", "Phase", "StepPlan", "TTSchedulerOutput"]


class Phase(Enum):
    """The one thing a step does."""

    PREFILL = "prefill"
    DECODE = "decode"
    EMPTY = "empty"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepPlan:
    """The rows of one step.

    All arrays have one entry per scheduled request, in the order of ``req_ids``.
    """

    phase: Phase
    req_ids: tuple[str, ...] = ()
    slots: npt.NDArray[np.int32]
    """Device slot of each row: lane x rows per lane + row."""
    starts: npt.NDArray[np.int32]
    """Tokens already computed before this step; for a decode row, its position."""
    ends: npt.NDArray[np.int32]
    """Tokens computed after this step (the end of a prefill chunk)."""
    intermediate: npt.NDArray[np.bool_]
    """True for a prefill chunk that is not the prompt's last: it yields no token."""
    released: tuple[int, ...] = ()
    """Slots given back since the previous plan, before this plan's rows were assigned."""

    @classmethod
    def build(
        cls,
        phase: Phase,
        rows: Sequence[tuple[str, int, int, int, bool]],
        released: tuple[int, ...] = (),
    ) -> StepPlan:
        """A plan from ``(request id, slot, start, end, intermediate)`` tuples."""
        ids, slots, starts, ends, intermediate = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        return cls(
            phase=phase,
            req_ids=tuple(ids),
            slots=np.array(slots, dtype=np.int32),
            starts=np.array(starts, dtype=np.int32),
            ends=np.array(ends, dtype=np.int32),
            intermediate=np.array(intermediate, dtype=np.bool_),
            released=released,
        )


EMPTY_PLAN = StepPlan.build(Phase.EMPTY, ())


@dataclass
class TTSchedulerOutput(SchedulerOutput):
    """vLLM's scheduler output with the step's plan as a declared field."""

    plan: StepPlan = EMPTY_PLAN
    lanes: tuple[SchedulerOutput, ...] = ()
    """What each lane scheduled, for its scheduler to update from."""
    record: StepRecord | None = None
    """What is noted of the step; None for one that computes nothing."""

    @classmethod
    def of(cls, output: SchedulerOutput, plan: StepPlan, lanes: tuple[SchedulerOutput, ...] = ()) -> TTSchedulerOutput:
        """``output`` with ``plan``; the fields are shared, not copied."""
        return cls(**vars(output), plan=plan, lanes=lanes)
