"""Follows a run step by step: who waited for what, and when tokens came."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.simulate.server import lanes_of
from tools.simulate.stats import Latency, Report

from vllm_tt.errors import TTError
from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    from tools.simulate.workload import Job
    from vllm.v1.engine import EngineCoreOutput

    from vllm_tt.scheduler.lanes import TTLaneCoordinator
    from vllm_tt.scheduler.phase import TTScheduler
    from vllm_tt.scheduler.plan import TTSchedulerOutput

__all__ = ["Recorder", "Timeline", "Times", "WrongTokenCount"]


class WrongTokenCount(TTError):
    """{name} finished with {found} tokens and asked for {expected}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """When one step ran, in nanoseconds."""

    idle: int
    """Since the step before ended: the device waited for the host."""
    start: int
    switch: int
    """Spent on the change of phase, from the start on."""
    end: int


class Timeline:
    """Steps as columns: nanoseconds, phases, requests that hold a slot and requests that wait for one."""

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.decodes = array("b")
        """1 for a decode step, 0 for a prefill step."""
        self.running, self.waiting = array("i"), array("i")

    def add(self, times: Times, *, decode: bool, running: int, waiting: int) -> None:
        self.starts.append(times.start)
        self.ends.append(times.end)
        self.decodes.append(decode)
        self.running.append(running)
        self.waiting.append(waiting)


class _Life:
    """What is known of an unfinished request."""

    __slots__ = ("computed", "job", "last_ns", "tokens")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tokens = 0
        self.last_ns = 0
        self.computed = 0
        """Tokens computed when it was last preempted, or the end of its last chunk."""


class Recorder:
    """Called by the run once for each arrival, step and result."""

    def __init__(self, scheduler: TTScheduler | TTLaneCoordinator, pages: int, block_size: int) -> None:
        self._scheduler, self._lanes = scheduler, lanes_of(scheduler)
        self._pages, self._block_size = pages, block_size
        self._lives: dict[str, _Life] = {}
        self._preempted: set[str] = set()
        self._phase: Phase | None = None
        self._run = 0
        self._slots_ns = self._kv_ns = self._clock = 0.0
        self._slots_max, self._kv_max = 0, 0.0
        self._busy = 0
        self.timeline = Timeline()
        self.ttft: Counter[int] = Counter()
        self.itl: Counter[int] = Counter()
        self.e2e: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.decode_stalls: Counter[str] = Counter()
        self.first_token_waits: Counter[str] = Counter()

    def arrived(self, job: Job, now: int) -> None:
        """``job`` is seen by the scheduler at ``now``; until then a step kept the engine busy."""
        self._lives[job.name] = _Life(job)
        self.first_token_waits["step in progress"] += now - job.arrival_ns

    def scheduled(self, output: TTSchedulerOutput, times: Times) -> None:
        """A step was handed to the device; the scheduler is as it left it."""
        for name in output.preempted_req_ids or ():
            self._preempt(name)
        phase = output.plan.phase
        self.counts[phase.value] += 1
        if phase is Phase.EMPTY:
            return
        self.counts["switches"] += self._phase not in (phase, None)
        self._phase = phase
        running, waiting = self._scheduler.get_request_counts()
        self.timeline.add(times, decode=phase is Phase.DECODE, running=running, waiting=waiting)
        self._use(running, times)
        if phase is Phase.PREFILL:
            decoding = self._prefilled(output)
            self._run = self._run + 1 if decoding else 0
            self.counts["longest run"] = max(self.counts["longest run"], self._run)
        else:
            self._run = 0
            decoding = len(output.plan.req_ids)
            if running > decoding:
                self._account_partial(times)
        if decoding:
            self._account_decoding(phase, times, decoding)
        if waiting:
            self._account_waiting(phase, times)

    def emitted(self, outputs: list[EngineCoreOutput], now: int) -> int:
        """Tokens reached their users at ``now``; how many requests finished with them."""
        finished = 0
        lives, itl = self._lives, self.itl
        for output in outputs:
            life = lives[output.request_id]
            if life.tokens:
                itl[now - life.last_ns] += len(output.new_token_ids)
            else:
                self.ttft[now - life.job.arrival_ns] += 1
            life.tokens += len(output.new_token_ids)
            life.last_ns = now
            if output.request_id in self._preempted:  # computed while it was
                life.computed += len(output.new_token_ids)
            if output.finish_reason is not None:
                self._finish(output.request_id, now)
                finished += 1
        return finished

    @property
    def unfinished(self) -> list[str]:
        return list(self._lives)

    def report(self, policy: str, first_ns: int, last_ns: int) -> Report:
        counts, seconds = self.counts, max(last_ns - first_ns, 1) / 1e9
        return Report(
            policy=policy,
            requests=counts["finished"],
            duration_s=seconds,
            requests_per_s=round(counts["finished"] / seconds, 4),
            output_tokens_per_s=round(counts["output tokens"] / seconds, 4),
            prompt_tokens=counts["prompt tokens"],
            output_tokens=counts["output tokens"],
            cached_tokens=counts["cached tokens"],
            recomputed_tokens=counts["recomputed tokens"],
            preemptions=counts["preemptions"],
            ttft_ms=Latency.of(self.ttft),
            itl_ms=Latency.of(self.itl),
            e2e_ms=Latency.of(self.e2e),
            prefill_steps=counts["prefill"],
            decode_steps=counts["decode"],
            empty_steps=counts["empty"],
            switches=counts["switches"],
            longest_prefill_run=counts["longest run"],
            device_busy=round(self._busy / 1e9 / seconds, 4),
            decode_stalls_s=_seconds(self.decode_stalls),
            first_token_waits_s=_seconds(self.first_token_waits),
            slots_mean=round(self._slots_ns / max(self._clock, 1), 2),
            slots_max=self._slots_max,
            kv_mean=round(self._kv_ns / max(self._clock, 1), 4),
            kv_max=round(self._kv_max, 4),
        )

    def _preempt(self, name: str) -> None:
        life = self._lives[name]
        if life.tokens:
            life.computed = life.job.prompt_tokens + life.tokens - 1
        self._preempted.add(name)
        self.counts["preemptions"] += 1

    def _prefilled(self, output: TTSchedulerOutput) -> int:
        """Count what a prefill step computes; returns how many requests could have decoded instead."""
        plan = output.plan
        rows = zip(plan.req_ids, plan.starts.tolist(), plan.ends.tolist(), plan.intermediate.tolist(), strict=True)
        final = 0
        for name, start, end, intermediate in rows:
            life = self._lives[name]
            if name in self._preempted:
                self.counts["recomputed tokens"] += max(min(end, life.computed) - start, 0)
            if intermediate:
                life.computed = max(life.computed, end)
            else:
                final += 1
                self._preempted.discard(name)
        self.counts["cached tokens"] += sum(new.num_computed_tokens for new in output.scheduled_new_reqs)
        return sum(not request.is_prefill_chunk for lane in self._lanes for request in lane.running) - final

    def _use(self, running: int, times: Times) -> None:
        """Slots and pages in use, over time."""
        spent = times.idle + times.end - times.start
        kv = sum(lane.kv_cache_manager.usage for lane in self._lanes) / len(self._lanes)
        self._clock += spent
        self._busy += times.end - times.start
        self._slots_ns += running * spent
        self._kv_ns += kv * spent
        self._slots_max, self._kv_max = max(self._slots_max, running), max(self._kv_max, kv)

    def _account_decoding(self, phase: Phase, times: Times, decoding: int) -> None:
        stalls = self.decode_stalls
        stalls["host"] += decoding * times.idle
        stalls["mode switch"] += decoding * times.switch
        if phase is Phase.PREFILL:
            stalls["prefill step"] += decoding * (times.end - times.start - times.switch)

    def _account_partial(self, times: Times) -> None:
        """Prompts between two chunks wait for the decode step."""
        partial = (request for lane in self._lanes for request in lane.running if request.is_prefill_chunk)
        waiting = sum(not self._lives[request.request_id].tokens for request in partial)
        self.first_token_waits["decode turn"] += waiting * (times.end - times.start)

    def _account_waiting(self, phase: Phase, times: Times) -> None:
        """What each waiting request waited for during the step."""
        spent = times.end - times.start
        for lane in self._lanes:
            if waiting := lane.get_request_counts()[1]:
                waiting -= self._account_preempted(lane, spent)
            if waiting:
                obstacle = "another lane is free" if self._another_could(lane) else self._obstacle(lane, phase)
                self.first_token_waits[obstacle] += waiting * spent

    def _another_could(self, lane: TTScheduler) -> bool:
        """Whether the first waiting request of a lane could start in another, where none waits."""
        head = lane.next_unstarted()
        return head is not None and any(
            other.spare_slots() > 0 and not other.get_request_counts()[1] and other.has_room_for(head)
            for other in self._lanes
            if other is not lane
        )

    def _account_preempted(self, lane: TTScheduler, spent: int) -> int:
        """How many of a lane's waiting requests wait because they were preempted."""
        found = 0
        for name in self._preempted & lane.requests.keys():
            if lane.requests[name].num_computed_tokens == 0:
                waits = self.decode_stalls if self._lives[name].tokens else self.first_token_waits
                waits["preempted"] += spent
                found += 1
        return found

    def _obstacle(self, lane: TTScheduler, phase: Phase) -> str:
        """Why the first waiting request of a lane was not admitted to the step."""
        if len(lane.running) >= lane.max_num_running_reqs:
            return "no free slot"
        head = (lane.waiting or lane.skipped_waiting).peek_request()
        free = self._pages * (1 - lane.kv_cache_manager.usage)
        if -(-head.num_tokens // self._block_size) > free + 1e-6:
            return "no free pages"
        return "token budget" if phase is Phase.PREFILL else "decode turn"

    def _finish(self, name: str, now: int) -> None:
        life = self._lives.pop(name)
        self._preempted.discard(name)
        job = life.job
        if life.tokens != job.output_tokens:
            raise WrongTokenCount(name=name, found=life.tokens, expected=job.output_tokens)
        self.e2e[now - job.arrival_ns] += 1
        self.counts["finished"] += 1
        self.counts["prompt tokens"] += job.prompt_tokens
        self.counts["output tokens"] += life.tokens


def _seconds(causes: Counter[str]) -> dict[str, float]:
    """Largest first; nothing that took no time."""
    return {cause: spent / 1e9 for cause, spent in causes.most_common() if spent}
