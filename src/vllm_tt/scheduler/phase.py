"""The phase scheduler: vLLM's scheduler run with the other phase's requests out of sight.

A step is prefill-only or decode-only because Tenstorrent generators compile and trace the two
separately. vLLM's own scheduling does all the rest: admission, budgets, preemption, prefix caching.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import RequestStatus

from vllm_tt.platform.compat import ADMISSION_CAPS
from vllm_tt.scheduler.images import keep_images_whole, whole_images
from vllm_tt.scheduler.interleave import DecodeInterleave
from vllm_tt.scheduler.lane_log import LaneFigures
from vllm_tt.scheduler.ledger import StepLedger
from vllm_tt.scheduler.plan import Phase, TTSchedulerOutput
from vllm_tt.scheduler.slots import SlotPool
from vllm_tt.scheduler.step import Demand, schedule_step

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    from vllm_tt.scheduler.step import PlanRow

__all__ = ["TTScheduler"]


class TTScheduler(AsyncScheduler):
    """vLLM's scheduler with one phase a step and a stable device slot for each running request.

    Alone it is the engine's scheduler; several are the lanes of a `TTLaneCoordinator`.
    """

    running: list[Request]
    _pause_state: PauseState

    def __init__(self, *args: Any, lane: int = 0, ledger: StepLedger | None = None, **kwargs: Any) -> None:
        """``ledger``: the coordinator's, which then opens and closes the steps."""
        super().__init__(*args, **kwargs)
        self._alone = ledger is None
        self.ledger = StepLedger(self.vllm_config) if ledger is None else ledger
        self._slots = SlotPool(self.max_num_running_reqs, first=lane * self.max_num_running_reqs)
        self._interleave = DecodeInterleave.of(self.vllm_config)
        keep_images_whole(self.kv_cache_manager)
        # The configured size says how large one image may be; adapters keep none that a cache could be full of.
        self.encoder_cache_manager = EncoderCacheManager(cache_size=self.max_num_encoder_input_tokens)
        self._left_waiting = False

    def schedule(self, throttle_prefills: bool = False) -> TTSchedulerOutput:
        started = perf_counter()
        output = schedule_step((self,), self._interleave, throttle=throttle_prefills)
        return self.ledger.open(output, started, self.decoding if output.plan.phase is Phase.PREFILL else 0)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        if isinstance(scheduler_output, TTSchedulerOutput):
            self.ledger.close(scheduler_output, self._figures)
        return super().update_from_output(scheduler_output, model_runner_output)

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        stats = super().make_stats(*args, **kwargs)
        if self._alone:
            self.ledger.tell(stats, self._figures)
        return stats

    def shutdown(self) -> None:
        super().shutdown()
        if self._alone:
            self.ledger.shutdown()

    def check(self) -> None:
        """Raise unless slots add up and only running requests hold them; valid between steps."""
        self._slots.check()

    @property
    def slots_held(self) -> int:
        return len(self._slots)

    def figures(self) -> LaneFigures:
        running, waiting = self.get_request_counts()
        return LaneFigures(running=running, waiting=waiting, kv_cache_usage=self.kv_cache_manager.usage)

    @property
    def decoding(self) -> int:
        """Running requests whose prompts are computed."""
        return len(self.running) - sum([request.is_prefill_chunk for request in self.running])

    def demand(self) -> Demand:
        """What there is to do; vLLM counts waiting requests that wait for a grammar too."""
        running, waiting = self.get_request_counts()
        chunks = sum([request.is_prefill_chunk for request in self.running])
        can_admit = waiting > 0 and running < self.max_num_running_reqs
        return Demand(prefill=can_admit or chunks > 0, decode=running > chunks)

    def run(self, phase: Phase, demand: Demand, *, throttle: bool) -> SchedulerOutput:
        """What vLLM schedules of one phase; nothing, at no cost, where there is nothing of it to schedule."""
        if not (demand.prefill if phase is Phase.PREFILL else demand.decode) and not self.has_finished_requests():
            return SchedulerOutput.make_empty()
        return self._prefill_pass(throttle) if phase is Phase.PREFILL else self._decode_pass(throttle)

    def release(self) -> tuple[int, ...]:
        """Take back the slots of requests that no longer run; returns them."""
        if len(self.running) == len(self._slots):
            return ()  # outside of a pass whatever runs has a slot: they are the same requests
        return self._slots.keep_only({request.request_id for request in self.running})

    def plan_rows(self, output: SchedulerOutput) -> list[PlanRow]:
        """The rows of ``output`` in the order vLLM scheduled them, each in its slot.

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
        return rows

    def has_backlog(self) -> bool:
        if not self.waiting:
            self._left_waiting = False
            return False
        return self._left_waiting or self.spare_slots() < 0

    def spare_slots(self) -> int:
        return self.max_num_running_reqs - sum(self.get_request_counts())

    def next_unstarted(self) -> Request | None:
        """The first waiting request that nothing was computed of; one that was preempted keeps its lane."""
        return next((request for request in self.waiting if request.status is RequestStatus.WAITING), None)

    def has_room_for(self, request: Request) -> bool:
        """Whether the free pages hold its prompt besides those of all that wait here, in every KV cache group."""
        pages = (self.kv_cache_config.num_blocks - 1) * (1 - self.kv_cache_manager.usage)
        tokens = pages * self.block_size / len(self.kv_cache_config.kv_cache_groups)
        return sum(one.num_tokens for one in (*self.waiting, request)) <= tokens

    def withdraw(self, request: Request) -> None:
        """Let another lane have ``request``, which has not started."""
        self.waiting.remove_request(request)
        del self.requests[request.request_id]

    def accept(self, request: Request) -> None:
        """Queue a request that another lane has withdrawn; it has been reported as queued there."""
        self.waiting.add_request(request)
        self.requests[request.request_id] = request

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, *budget: Any, **more: Any
    ) -> Any:
        """What vLLM asks about each chunk of a prompt with images; they are the adapter's to encode."""
        count = whole_images(request, num_computed_tokens, num_new_tokens)
        return super()._try_schedule_encoder_inputs(request, num_computed_tokens, count, *budget, **more)

    def _figures(self) -> tuple[LaneFigures]:
        return (self.figures(),)

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        self.ledger.preempted(request.request_id, request.num_computed_tokens)
        super()._preempt_request(request, timestamp)

    def _prefill_pass(self, throttle: bool) -> SchedulerOutput:
        """Schedule with the decodes hidden; their places stay taken."""
        decodes = [request for request in self.running if not request.is_prefill_chunk]
        self.running = [request for request in self.running if request.is_prefill_chunk]
        caps = {name: getattr(self, name) for name in ADMISSION_CAPS if hasattr(self, name)}
        for name, cap in caps.items():
            setattr(self, name, cap - len(decodes))
        try:
            return super().schedule(throttle)
        finally:
            self._left_waiting = bool(self.waiting)
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
