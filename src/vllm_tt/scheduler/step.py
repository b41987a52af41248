"""One step over all lanes: they agree on a phase, schedule it and become one output."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from vllm_tt.errors import TTError
from vllm_tt.scheduler.merge import merge_records
from vllm_tt.scheduler.plan import Phase, StepPlan, TTSchedulerOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.v1.core.sched.output import SchedulerOutput

    from vllm_tt.scheduler.interleave import DecodeInterleave

    PlanRow = tuple[str, int, int, int, bool]
    """Request id, slot, start, end, and whether it is an intermediate chunk."""

__all__ = ["Demand", "Lane", "MixedStep", "schedule_step"]


class MixedStep(TTError):
    """A {phase} step scheduled requests of the other phase: {requests}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What a lane could do in the next step."""

    prefill: bool
    decode: bool


class Lane(Protocol):
    """What a step needs of a lane's scheduler."""

    def demand(self) -> Demand: ...

    def run(self, phase: Phase, demand: Demand, *, throttle: bool) -> SchedulerOutput: ...

    def release(self) -> tuple[int, ...]: ...

    def plan_rows(self, output: SchedulerOutput) -> list[PlanRow]: ...


def schedule_step(lanes: Sequence[Lane], interleave: DecodeInterleave, *, throttle: bool) -> TTSchedulerOutput:
    """The step of all lanes; one without anything for the phase gives an empty slice.

    A prefill pass that schedules nothing while a request decodes gives way to a decode pass in the same step.
    """
    released = [slot for lane in lanes for slot in lane.release()]
    demands = [lane.demand() for lane in lanes]
    decoding = any(demand.decode for demand in demands)
    phase = interleave.choose(prefill_pending=any(demand.prefill for demand in demands), decode_running=decoding)
    outputs = _run(lanes, phase, demands, throttle=throttle)
    if phase is Phase.PREFILL and decoding and not _scheduled(outputs):
        phase, abandoned = Phase.DECODE, outputs
        outputs = _run(lanes, phase, demands, throttle=throttle)
        for before, after in zip(abandoned, outputs, strict=True):
            _carry(before, after)
    if not _scheduled(outputs):
        phase = Phase.EMPTY
    interleave.ran(phase)
    if any(output.preempted_req_ids for output in outputs):
        # Their slots go back in the same step.
        released += [slot for lane in lanes for slot in lane.release()]
    rows = [row for lane, output in zip(lanes, outputs, strict=True) for row in lane.plan_rows(output)]
    return TTSchedulerOutput.of(merge_records(outputs), _plan(phase, rows, tuple(released)), tuple(outputs))


def _run(lanes: Sequence[Lane], phase: Phase, demands: Sequence[Demand], *, throttle: bool) -> list[SchedulerOutput]:
    return [lane.run(phase, demand, throttle=throttle) for lane, demand in zip(lanes, demands, strict=True)]


def _plan(phase: Phase, rows: list[PlanRow], released: tuple[int, ...]) -> StepPlan:
    if phase is Phase.DECODE:
        # Their order means nothing; in that of the slots, the rows of the device's output follow one another.
        rows.sort(key=itemgetter(1))
    plan = StepPlan.build(phase, rows, released)
    if phase is Phase.DECODE and (plan.intermediate.any() or (plan.ends - plan.starts != 1).any()):
        raise MixedStep(phase=phase.value, requests=", ".join(plan.req_ids))
    return plan


def _scheduled(outputs: Sequence[SchedulerOutput]) -> bool:
    return any(output.total_num_scheduled_tokens for output in outputs)


def _carry(abandoned: SchedulerOutput, output: SchedulerOutput) -> None:
    """Hand on what vLLM reported with the abandoned pass and has already forgotten."""
    output.finished_req_ids |= abandoned.finished_req_ids
    output.free_encoder_mm_hashes = abandoned.free_encoder_mm_hashes + output.free_encoder_mm_hashes
    if abandoned.preempted_req_ids:
        output.preempted_req_ids = (output.preempted_req_ids or set()) | abandoned.preempted_req_ids
