"""Several lanes in one engine: single-process data parallelism.

Every lane is a `TTScheduler` with its own queues, admission, KV cache and block ids. A request is bound to a
lane when it arrives and stays there once it has started; each step runs one phase in all lanes, and the device
sees one batch.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import vllm.envs as envs
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.output import GrammarOutput

from vllm_tt.platform.lanes import lane_shape
from vllm_tt.scheduler.balance import rebind
from vllm_tt.scheduler.interleave import DecodeInterleave
from vllm_tt.scheduler.lane_log import LaneFigures, LaneLog
from vllm_tt.scheduler.ledger import StepLedger
from vllm_tt.scheduler.merge import merge_records, merge_values
from vllm_tt.scheduler.phase import TTScheduler
from vllm_tt.scheduler.plan import Phase, TTSchedulerOutput
from vllm_tt.scheduler.step import schedule_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request, RequestStatus

__all__ = ["TTLaneCoordinator"]


class TTLaneCoordinator(SchedulerInterface):
    """The scheduler of an engine with lanes."""

    connector = None
    ec_connector = None
    """Read by the engine; KV and encoder-cache transfer are refused."""

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        count = lane_shape(vllm_config).lanes
        self.ledger = StepLedger(vllm_config)
        self.lanes = tuple(
            TTScheduler(vllm_config, *args, lane=lane, ledger=self.ledger, **kwargs) for lane in range(count)
        )
        self._interleave = DecodeInterleave.of(vllm_config)
        self._lane_of: dict[str, TTScheduler] = {}
        self._log = LaneLog(envs.VLLM_LOG_STATS_INTERVAL) if self.lanes[0].log_stats else None

    def schedule(self, throttle_prefills: bool = False) -> TTSchedulerOutput:
        started = perf_counter()
        self.rebind()
        output = schedule_step(self.lanes, self._interleave, throttle=throttle_prefills)
        prefills = output.plan.phase is Phase.PREFILL
        return self.ledger.open(output, started, sum(lane.decoding for lane in self.lanes) if prefills else 0)

    def add_request(self, request: Request) -> None:
        """To the lane with the fewest requests; of equals, the first."""
        lane = self._lane_of.get(request.request_id) or min(self.lanes, key=TTScheduler.get_num_unfinished_requests)
        self._lane_of[request.request_id] = lane
        lane.add_request(request)

    def rebind(self) -> None:
        """Let requests that have not started go to lanes that can start them now, unless scheduling is paused."""
        if self.pause_state is PauseState.UNPAUSED:
            moved = {request.request_id: lane for request, lane in rebind(self.lanes)}
            self._lane_of.update(moved)
            if moved and self._log is not None:
                self._log.moved(len(moved))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Each lane takes its own requests' results; they are found by request id."""
        assert isinstance(scheduler_output, TTSchedulerOutput)
        self.ledger.close(scheduler_output, self.figures)
        merged: dict[int, EngineCoreOutputs] = {}
        stats = []
        for lane, output in zip(self.lanes, _slices(scheduler_output), strict=True):
            for client, part in lane.update_from_output(output, model_runner_output).items():
                if part.scheduler_stats is not None:
                    stats.append(part.scheduler_stats)
                    part.scheduler_stats = None
                if client in merged:
                    _extend(merged[client], part)
                else:
                    merged[client] = part
        if stats:  # of the engine, told to one client
            next(iter(merged.values())).scheduler_stats = self._total(stats)
        self._forget_finished()
        if self._log is not None:
            self._log.note(self.figures)
        return merged

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        ids: list[str] = []
        masks = []
        for lane, output in zip(self.lanes, _slices(scheduler_output), strict=True):
            if (grammar := lane.get_grammar_bitmask(output)) is not None:
                ids += grammar.structured_output_request_ids
                # The lanes share one buffer for their masks.
                masks.append(grammar.grammar_bitmask.copy())
        return GrammarOutput(ids, np.concatenate(masks)) if ids else None

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """There are none: speculative decoding is refused."""

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: SchedulerOutput
    ) -> None:
        """There are none: speculative decoding is refused."""

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Any]:
        """What the lanes return for their own requests; None finishes all."""
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        ids = None if request_ids is None else list(request_ids)
        finished: list[Any] = []
        for lane in self.lanes:
            its = None if ids is None else [req_id for req_id in ids if self._lane_of.get(req_id) is lane]
            if its or its is None:
                finished += lane.finish_requests(its, finished_status)
        self._forget_finished()
        return finished

    def has_unfinished_requests(self) -> bool:
        return any(lane.has_unfinished_requests() for lane in self.lanes)

    def get_num_unfinished_requests(self) -> int:
        return sum(lane.get_num_unfinished_requests() for lane in self.lanes)

    def has_finished_requests(self) -> bool:
        return any(lane.has_finished_requests() for lane in self.lanes)

    def has_request(self, request_id: str) -> bool:
        """Whether a request is known to its lane."""
        lane = self._lane_of.get(request_id)
        return lane is not None and request_id in lane.requests

    @property
    def requests(self) -> dict[str, Request]:
        """All lanes' unfinished requests, by id."""
        return {req_id: request for lane in self.lanes for req_id, request in lane.requests.items()}

    @property
    def pause_state(self) -> PauseState:
        return self.lanes[0].pause_state

    def set_pause_state(self, pause_state: PauseState) -> None:
        for lane in self.lanes:
            lane.set_pause_state(pause_state)

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Every lane's; true when all were reset."""
        reset = [lane.reset_prefix_cache(reset_running_requests, reset_connector) for lane in self.lanes]
        return all(reset)

    def reset_encoder_cache(self) -> None:
        for lane in self.lanes:
            lane.reset_encoder_cache()

    def get_request_counts(self) -> tuple[int, int]:
        counts = [lane.get_request_counts() for lane in self.lanes]
        return sum(running for running, _ in counts), sum(waiting for _, waiting in counts)

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        return self._total([stats for lane in self.lanes if (stats := lane.make_stats(*args, **kwargs))])

    def figures(self) -> list[LaneFigures]:
        """Each lane's own."""
        return [lane.figures() for lane in self.lanes]

    def get_kv_cache_usage(self) -> float:
        """The mean of the lanes, which have as many pages each."""
        return sum(lane.kv_cache_manager.usage for lane in self.lanes) / len(self.lanes)

    def shutdown(self) -> None:
        for lane in self.lanes:
            lane.shutdown()
        self.ledger.shutdown()

    def check(self) -> None:
        """Raise unless every lane's slots add up; valid between steps."""
        for lane in self.lanes:
            lane.check()

    @property
    def slots_held(self) -> int:
        return sum(lane.slots_held for lane in self.lanes)

    def _total(self, parts: list[SchedulerStats]) -> SchedulerStats | None:
        total = _total_stats(parts)
        self.ledger.tell(total, self.figures)
        return total

    def _forget_finished(self) -> None:
        """Drop the bindings of requests that are gone; they are looked through only when some are."""
        if len(self._lane_of) > sum(len(lane.requests) for lane in self.lanes):
            self._lane_of = {req_id: lane for req_id, lane in self._lane_of.items() if req_id in lane.requests}


def _slices(output: SchedulerOutput) -> tuple[SchedulerOutput, ...]:
    """The lanes' own outputs of a step of ours."""
    assert isinstance(output, TTSchedulerOutput)
    return output.lanes


def _extend(whole: EngineCoreOutputs, part: EngineCoreOutputs) -> None:
    """Add to what a client is told of a step what another lane has for it."""
    if part.outputs:
        whole.outputs = whole.outputs + part.outputs
    if part.finished_requests:
        whole.finished_requests = merge_values([whole.finished_requests, part.finished_requests])


def _total_stats(parts: list[SchedulerStats]) -> SchedulerStats | None:
    """The engine's statistics from the lanes': counts are added, the KV cache's use is their mean."""
    if not parts:
        return None
    usage = sum([part.kv_cache_usage for part in parts]) / len(parts)
    total = merge_records(parts)
    total.kv_cache_usage = usage
    return total
