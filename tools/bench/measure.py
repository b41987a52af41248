"""The measurements that an engine's process makes when it is asked to."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tools.bench.floor import constant_tokens
from tools.bench.sampler import Sampler
from tools.bench.settings import Arriving, Steady, Timing
from tools.bench.workloads import churn_jobs, steady_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.engine import Engine
    from tools.bench.workloads import Job

__all__ = ["answer"]

MARGIN = 100
"""Tokens that a request may be ahead of the last one."""


def steady(engine: Engine, asked: Steady, observer: AbstractContextManager[Any] | None = None) -> Timing:
    """Begins when all requests are under way; ``observer`` is there while steps are timed."""
    warm = max(10, asked.steps // 10)
    worker = constant_tokens(engine.worker) if asked.floor else nullcontext()
    with worker, engine.device_step(asked.device_ms):
        jobs = steady_jobs(asked.workload, asked.rows, asked.steps + warm + MARGIN, engine.page)
        names = [engine.add(job) for job in jobs]
        waiting = set(names)
        while waiting:
            waiting.difference_update(engine.step())
        for _ in range(warm):
            engine.step()
        with engine.timed() as timer, observer or nullcontext():
            for _ in range(asked.steps):
                timer.step()
        engine.finish(names)
    return timer.timing


def churn(engine: Engine, asked: Arriving) -> Timing:
    """Requests that come and go: how many there are depends on how fast they are served."""
    with engine.device_step(asked.device_ms):
        end = asked.warm + asked.seconds
        arrivals = _Arrivals(engine, iter(churn_jobs(asked.rate, end, asked.seed)))
        while arrivals.clock() < asked.warm:
            arrivals.admit()
            engine.step()
        with engine.timed() as timer:
            while arrivals.clock() < end:
                arrivals.admit()
                timer.step()
        engine.finish(arrivals.names)
    return timer.timing


class _Arrivals:
    """Gives an engine its requests when they are due."""

    def __init__(self, engine: Engine, jobs: Iterator[Job]) -> None:
        self._engine, self._jobs = engine, jobs
        self._next = next(jobs, None)
        self._began = time.perf_counter()
        self.names: list[str] = []

    def clock(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def admit(self) -> None:
        """Add what is due; wait for the next request when there is nothing to do."""
        while self._next is not None:
            early = self._next.arrival - self.clock()
            if early > 0:
                if self._engine.busy:
                    return
                time.sleep(early)
            self.names.append(self._engine.add(self._next))
            self._next = next(self._jobs, None)


def reading(engine: Engine, *, times: int) -> Timing:
    """Looking once at all logits of a step: no sampling on the host can take less."""
    logits, walls = engine.model.logits[:, 0], []
    cpu = time.process_time_ns()
    for _ in range(times):
        began = time.perf_counter_ns()
        logits.amax(dim=-1)
        walls.append(time.perf_counter_ns() - began)
    return Timing(loop=walls, core=walls, cpu=time.process_time_ns() - cpu, device=0)


def profile(engine: Engine, asked: Steady) -> dict[str, Any]:
    """The timing of `steady` steps, and the samples of a profiler that ran beside them."""
    sampler = Sampler()
    timing = steady(engine, asked, sampler)
    return {"timing": asdict(timing), "samples": sampler.samples, "top": sampler.top, "ours": sampler.ours}


def answer(engine: Engine, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The measurement of that name, as JSON has it."""
    match name:
        case "steady":
            return asdict(steady(engine, Steady(**asked)))
        case "churn":
            return asdict(churn(engine, Arriving(**asked)))
        case "reading":
            return asdict(reading(engine, **asked))
        case "profile":
            return profile(engine, Steady(**asked))
    raise ValueError(name)
