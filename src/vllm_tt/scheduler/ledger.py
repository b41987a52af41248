"""The engine's books: every step is opened when it is scheduled and closed when its results are applied."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from vllm_tt import telemetry
from vllm_tt.config import TTConfig
from vllm_tt.platform.compat import tell_counts
from vllm_tt.platform.lanes import lane_shape
from vllm_tt.scheduler.plan import Phase
from vllm_tt.scheduler.record import StepRecord
from vllm_tt.scheduler.step_log import StepLog
from vllm_tt.telemetry import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import numpy.typing as npt
    from vllm.config import VllmConfig
    from vllm.v1.metrics.stats import SchedulerStats

    from vllm_tt.scheduler.lane_log import LaneFigures
    from vllm_tt.scheduler.plan import StepPlan, TTSchedulerOutput

__all__ = ["StepLedger"]


class StepLedger:
    """Counts what steps do and what they cost; all lanes of an engine share one."""

    def __init__(self, config: VllmConfig, clock: Callable[[], float] = time.perf_counter) -> None:
        self.counters = Counters()
        self._clock = clock
        self._closed = clock()
        self._shape = lane_shape(config)
        lanes = map(str, range(self._shape.lanes))
        self._gauges = [tuple(telemetry.key_of(gauge, lane) for gauge in telemetry.GAUGES) for lane in lanes]
        self._phase: Phase | None = None
        self._chunked: npt.NDArray[np.bool_] = np.zeros(self._shape.rows, dtype=np.bool_)
        """Slots whose prompt has been computed in part."""
        self._lost: dict[str, int] = {}
        """Tokens that were computed of requests before they were preempted."""
        self._preempted: list[str] = []
        self._log = _step_log(config)
        self._steps = 0

    def preempted(self, req_id: str, computed: int) -> None:
        """A request is about to lose what was computed of it."""
        self._lost[req_id] = max(computed, self._lost.get(req_id, 0))
        self._preempted.append(req_id)

    def open(self, output: TTSchedulerOutput, started: float, decoding: int) -> TTSchedulerOutput:
        """Begin a step that was scheduled; ``decoding``: requests whose prompts are computed, those of the step too."""
        plan = output.plan
        for req_id in output.finished_req_ids:
            self._lost.pop(req_id, None)
        if plan.released:
            self._chunked[list(plan.released)] = False
        if plan.phase is Phase.EMPTY:
            if self._log is not None:
                self._log.flush()
            return output
        record = output.record = StepRecord(counters=self.counters, started=started)
        record.preempted, self._preempted = tuple(self._preempted), []
        if plan.phase is Phase.PREFILL:
            record.stalled = decoding - int((~plan.intermediate).sum())
            record.recomputed = self._recomputed(plan) if self._lost else 0
            first = plan.slots[plan.intermediate & ~self._chunked[plan.slots]]
            if first.size:
                self.counters.add(telemetry.CHUNKED_PROMPTS, first.size)
            self._chunked[plan.slots] = plan.intermediate
        return output

    def close(self, output: TTSchedulerOutput, figures: Callable[[], Sequence[LaneFigures]]) -> None:
        """End a step whose results are there."""
        if (record := output.record) is None:
            return
        ended, plan, add = record.ended or self._clock(), output.plan, self.counters.add
        elapsed = _microseconds(ended - max(record.started, self._closed))
        self._closed = ended
        phase = plan.phase.value
        add(telemetry.STEP_TIME, elapsed, phase)
        add(telemetry.DEVICE_WAIT, _microseconds(record.waited), phase)
        add(telemetry.TOKENS, _tokens(plan), phase)
        if self._phase not in (None, plan.phase):
            add(telemetry.PHASE_SWITCHES, 1)
        self._phase = plan.phase
        if record.stalled:
            add(telemetry.STALLS, 1)
            add(telemetry.DECODE_STALL, elapsed)
            add(telemetry.STALLED_REQUESTS, elapsed * record.stalled)
        if record.recomputed:
            add(telemetry.RECOMPUTED_TOKENS, record.recomputed)
        if record.preempted:
            add(telemetry.PREEMPTIONS, len(record.preempted))
        self._steps += 1
        if self._log is not None:
            self._log.write(self._line(plan, record, elapsed, figures()))

    def tell(self, stats: SchedulerStats | None, figures: Callable[[], Sequence[LaneFigures]]) -> None:
        """Let vLLM's statistics bring to the server what was counted since the last time, and the lanes' figures."""
        if stats is None:
            return
        counts = self.counters.take()
        for keys, its in zip(self._gauges, figures(), strict=True):
            values = (self._shape.per_lane, its.running, its.waiting, _microseconds(its.kv_cache_usage))
            counts.update(zip(keys, values, strict=True))
        tell_counts(stats, counts)

    def shutdown(self) -> None:
        if self._log is not None:
            self._log.close()

    def _recomputed(self, plan: StepPlan) -> int:
        """How many of a prefill's tokens were computed before; what is made up for is forgotten."""
        total = 0
        for req_id, start, end in zip(plan.req_ids, plan.starts.tolist(), plan.ends.tolist(), strict=True):
            if (lost := self._lost.get(req_id, 0)) > start:
                total += min(end, lost) - start
            if lost and lost <= end:
                del self._lost[req_id]
        return total

    def _line(self, plan: StepPlan, record: StepRecord, elapsed: int, figures: Sequence[LaneFigures]) -> dict[str, Any]:
        lanes, per_lane = self._shape.lanes, self._shape.per_lane
        rows = np.bincount(plan.slots // per_lane, minlength=lanes).tolist() if lanes > 1 else [len(plan.slots)]
        step = {
            "step": self._steps,
            "time": round(time.time(), 6),
            "phase": plan.phase.value,
            "ms": elapsed / 1000,
            "wait_ms": round(record.waited * 1000, 3),
            "rows": rows,
            "tokens": _tokens(plan),
            "running": [its.running for its in figures],
            "waiting": [its.waiting for its in figures],
            "kv": [round(its.kv_cache_usage, 4) for its in figures],
            "sampled": record.sampled,
        }
        if plan.phase is Phase.PREFILL:
            step["requests"] = list(plan.req_ids)
        more = {
            "stalled": record.stalled,
            "recomputed": record.recomputed,
            "preempted": record.preempted,
            "host": record.reasons,
            "drain": record.drain,
        }
        return step | {name: value for name, value in more.items() if value}


def _tokens(plan: StepPlan) -> int:
    return len(plan.slots) if plan.phase is Phase.DECODE else int((plan.ends - plan.starts).sum())


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _step_log(config: VllmConfig) -> StepLog | None:
    options = TTConfig.from_additional_config(config.additional_config)
    if options.step_log is None:
        return None
    parallel = config.parallel_config
    engine = f".{parallel.data_parallel_index}" if parallel.data_parallel_size > 1 else ""
    return StepLog(options.step_log + engine, options.step_log_bytes)
