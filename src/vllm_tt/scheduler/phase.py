"""The phase scheduler: vLLM's scheduler run with the other phase's requests out of sight.

A step is prefill-only or decode-only because Tenstorrent generators compile and trace the two
separately. vLLM's own scheduling does all the rest: admission, budgets, preemption, prefix caching.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState

from vllm_tt.config import TTConfig
from vllm_tt.errors import TTError
from vllm_tt.platform.compat import ADMISSION_CAPS
from vllm_tt.scheduler.interleave import DecodeInterleave
from vllm_tt.scheduler.plan import Phase, StepPlan, TTSchedulerOutput
from vllm_tt.scheduler.slots import SlotPool

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

__all__ = ["MixedStep", "TTScheduler"]


class MixedStep(TTError):
    """A {phase} step scheduled requests of the other phase: {requests}."""


class TTScheduler(AsyncScheduler):
    """vLLM's scheduler with one phase a step and a stable device slot for each running request."""

    running: list[Request]
    _pause_state: PauseState

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = TTConfig.from_additional_config(self.vllm_config.additional_config)
        self._slots = SlotPool(self.max_num_running_reqs)
        self._interleave = DecodeInterleave(
            enabled=config.decode_interleave_enabled,
            prefill_steps=config.decode_interleave_prefill_steps,
            decode_steps=config.decode_interleave_decode_steps,
        )

    def schedule(self, throttle_prefills: bool = False) -> TTSchedulerOutput:
        chunks = [request for request in self.running if request.is_prefill_chunk]
        decodes = [request for request in self.running if not request.is_prefill_chunk]
        released = self._slots.keep_only({request.request_id for request in self.running})

        phase = self._interleave.choose(prefill_pending=bool(chunks) or self._can_admit(), decode_running=bool(decodes))
        if phase is Phase.PREFILL:
            output = self._prefill_pass(decodes, throttle_prefills)
            if decodes and not output.total_num_scheduled_tokens:
                phase, abandoned = Phase.DECODE, output
                output = self._decode_pass(throttle_prefills)
                _carry(abandoned, output)
        else:
            output = self._decode_pass(throttle_prefills)
        if not output.total_num_scheduled_tokens:
            phase = Phase.EMPTY
        self._interleave.ran(phase)
        # A pass may have preempted requests: their slots go back in the same step.
        released += self._slots.keep_only({request.request_id for request in self.running})
        return TTSchedulerOutput.of(output, self._plan(phase, output, released))

    def check(self) -> None:
        """Raise unless slots add up and only running requests hold them; valid between steps."""
        self._slots.check()

    @property
    def slots_held(self) -> int:
        return len(self._slots)

    def _can_admit(self) -> bool:
        """Whether a waiting request could get a slot; vLLM counts those that wait for a grammar too."""
        return len(self.running) < self.max_num_running_reqs and self.get_request_counts()[1] > 0

    def _prefill_pass(self, decodes: list[Request], throttle: bool) -> SchedulerOutput:
        """Schedule with the decodes hidden; their places stay taken."""
        self.running = [request for request in self.running if request.is_prefill_chunk]
        caps = {name: getattr(self, name) for name in ADMISSION_CAPS if hasattr(self, name)}
        for name, cap in caps.items():
            setattr(self, name, cap - len(decodes))
        try:
            return super().schedule(throttle)
        finally:
            # Decodes go first, so that preemption, which takes the last, still takes the youngest.
            self.running = decodes + self.running
            for name, cap in caps.items():
                setattr(self, name, cap)

    def _decode_pass(self, throttle: bool) -> SchedulerOutput:
        """Schedule with partial prefills hidden and nothing admitted."""
        chunks = [request for request in self.running if request.is_prefill_chunk]
        self.running = [request for request in self.running if not request.is_prefill_chunk]
        pause_state = self._pause_state
        if pause_state is PauseState.UNPAUSED:
            self._pause_state = PauseState.PAUSED_NEW
        try:
            return super().schedule(throttle)
        finally:
            self._pause_state = pause_state
            self.running = self.running + chunks

    def _plan(self, phase: Phase, output: SchedulerOutput, released: tuple[int, ...]) -> StepPlan:
        """The step's rows; in a prefill in the order vLLM scheduled them.

        A row with a prefix-cache hit may share pages that a row of this same step computes; that row
        was scheduled before it.
        """
        cached = output.scheduled_cached_reqs
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        rows = []
        for req_id, count in output.num_scheduled_tokens.items():
            slot = self._slots[req_id] if req_id in self._slots else self._slots.take(req_id)
            start = starts[req_id]
            rows.append((req_id, slot, start, start + count, self.requests[req_id].is_prefill_chunk))
        if phase is Phase.DECODE:
            # Their order means nothing; in that of the slots, the rows of the device's output follow one another.
            rows.sort(key=itemgetter(1))
        plan = StepPlan.build(phase, rows, released)
        if phase is Phase.DECODE and (plan.intermediate.any() or (plan.ends - plan.starts != 1).any()):
            raise MixedStep(phase=phase.value, requests=", ".join(plan.req_ids))
        return plan


def _carry(abandoned: SchedulerOutput, output: SchedulerOutput) -> None:
    """Hand on what vLLM reported with the abandoned pass and has already forgotten."""
    output.finished_req_ids |= abandoned.finished_req_ids
    output.free_encoder_mm_hashes = abandoned.free_encoder_mm_hashes + output.free_encoder_mm_hashes
    if abandoned.preempted_req_ids:
        output.preempted_req_ids = (output.preempted_req_ids or set()) | abandoned.preempted_req_ids
