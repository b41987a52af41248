"""The engine's loop on a virtual clock: the real scheduler, a device that only takes time."""

from __future__ import annotations

import gc
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.simulate.record import Recorder, Times
from tools.simulate.server import make_requests, make_scheduler
from tools.simulate.workload import check_lengths

from vllm_tt.errors import TTError
from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence

    from tools.simulate.device import DeviceModel
    from tools.simulate.record import Timeline
    from tools.simulate.server import Server
    from tools.simulate.stats import Report
    from tools.simulate.workload import Job
    from vllm.v1.outputs import ModelRunnerOutput

    from vllm_tt.scheduler.plan import StepPlan, TTSchedulerOutput

__all__ = ["Result", "Stuck", "simulate"]

MOST_EMPTY_STEPS = 100


class Stuck(TTError):
    """Nothing was scheduled in {steps} steps in a row, with {waiting} waiting and {running} running: {names}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A finished run."""

    report: Report
    timeline: Timeline
    gaps: Counter[int]
    """How often each inter-token latency, in nanoseconds, occurred."""


def simulate(
    jobs: Sequence[Job],
    server: Server,
    device: DeviceModel,
    *,
    policy: str = "as configured",
    progress: Callable[[int], object] | None = None,
) -> Result:
    """Serve ``jobs``, which are in the order of their arrival, to the end.

    ``progress`` is told how many requests each step finished; ``policy`` is the report's name.
    """
    check_lengths(list(jobs), server.max_model_len)
    run = _Run(jobs, server, device)
    with _few_collections():
        run.to_the_end(progress)
    report = run.recorder.report(policy, jobs[0].arrival_ns, run.now)
    return Result(report=report, timeline=run.recorder.timeline, gaps=run.recorder.itl)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Nothing here makes cycles in numbers: keep the collector from walking vLLM's modules."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _Run:
    def __init__(self, jobs: Sequence[Job], server: Server, device: DeviceModel) -> None:
        self._jobs, self._next = jobs, 0
        self._device = device
        self._scheduler = make_scheduler(server)
        self._make_request = make_requests(server, self._scheduler)
        self._most_in_flight = 2 if server.async_scheduling else 1
        self._in_flight: deque[tuple[TTSchedulerOutput, int]] = deque()
        self._device_free, self._phase, self._empty = jobs[0].arrival_ns, Phase.EMPTY, 0
        self.recorder = Recorder(self._scheduler, server.pages, server.block_size)
        self.now = jobs[0].arrival_ns
        """The host's clock in nanoseconds."""

    def to_the_end(self, progress: Callable[[int], object] | None) -> None:
        while self._next < len(self._jobs) or self._scheduler.has_requests() or self._in_flight:
            self._admit()
            if self._scheduler.has_requests():
                self._submit()
                if len(self._in_flight) < self._most_in_flight and self._scheduler.has_requests():
                    continue
            elif not self._in_flight:
                self.now = self._device_free = self._jobs[self._next].arrival_ns
                continue
            finished = self._resolve()
            if finished and progress is not None:
                progress(finished)

    def _admit(self) -> None:
        while self._next < len(self._jobs) and self._jobs[self._next].arrival_ns <= self.now:
            job = self._jobs[self._next]
            self._scheduler.add_request(self._make_request(self._next, job))
            self.recorder.arrived(job, self.now)
            self._next += 1

    def _submit(self) -> None:
        """Schedule a step and let the device run it after the one before."""
        output = self._scheduler.schedule()
        times = self._times(output.plan)
        self.recorder.scheduled(output, times)
        self._in_flight.append((output, times.end))
        if output.plan.phase is not Phase.EMPTY or output.finished_req_ids:
            self._empty = 0
            return
        self._empty += 1
        if self._empty > MOST_EMPTY_STEPS:
            running, waiting = self._scheduler.get_request_counts()
            names = ", ".join(self.recorder.unfinished[:10])
            raise Stuck(steps=self._empty, waiting=waiting, running=running, names=names)

    def _times(self, plan: StepPlan) -> Times:
        self.now += self._device.host_ns
        if plan.phase is Phase.EMPTY:
            return Times(idle=0, start=self.now, switch=0, end=self.now)
        start = max(self.now, self._device_free)
        changed = plan.phase is not self._phase and self._phase is not Phase.EMPTY
        switch = self._device.switch_ns if changed else 0
        end = start + switch + self._device.step_ns(plan)
        times = Times(idle=start - self._device_free, start=start, switch=switch, end=end)
        self._device_free, self._phase = end, plan.phase
        return times

    def _resolve(self) -> int:
        """Wait for the oldest step and give its tokens to the scheduler; how many requests finished."""
        output, end = self._in_flight.popleft()
        self.now = max(self.now, end)
        results = self._scheduler.update_from_output(output, _tokens(output.plan))
        return sum(self.recorder.emitted(client.outputs, self.now) for client in results.values())


def _tokens(plan: StepPlan) -> ModelRunnerOutput:
    """A token for every row that is not an intermediate chunk."""
    from vllm.v1.outputs import ModelRunnerOutput

    if plan.phase is Phase.DECODE:
        sampled = [[1] for _ in plan.req_ids]
    else:
        sampled = [[] if intermediate else [1] for intermediate in plan.intermediate.tolist()]
    return ModelRunnerOutput(
        req_ids=list(plan.req_ids),
        req_id_to_index={name: index for index, name in enumerate(plan.req_ids)},
        sampled_token_ids=sampled,
    )
