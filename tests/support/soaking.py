"""Random workloads on the oracle through vLLM's engine in this process: every token of every request is checked.

The same code serves the test suite, with few requests, and `tools/soak.py`, with many.
"""

import random
from dataclasses import dataclass, field

from engine import Engine
from oracle import VOCAB_SIZE, expected_tokens

ENGINE = {"max_model_len": 512, "max_num_seqs": 6, "block_size": 32, "max_num_batched_tokens": 512}
"""Options that the cases change."""

TIGHT = {"num_gpu_blocks_override": 18}
"""One request of the greatest length and a page: less than half a request a slot."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration of engine and workload."""

    options: dict = field(default_factory=dict)
    longest_prompt: int = 300
    longest_output: int = 80
    aborts: float = 0.3
    """Share of the requests that are aborted, at a random point of their life."""
    shared: float = 0.5
    """Share of the prompts that begin as others do."""
    preempts: bool = False
    """Whether the workload must run out of pages."""


CASES = {
    "plain": Case(options={"enable_chunked_prefill": False, "enable_prefix_caching": False}),
    "chunks of 512": Case(options={"max_model_len": 1024, "enable_prefix_caching": False}, longest_prompt=900),
    "chunks of 64": Case(options={"max_num_batched_tokens": 64, "enable_prefix_caching": False}),
    "chunks of 7": Case(options={"long_prefill_token_threshold": 7, "enable_prefix_caching": False}),
    "chunks of 1": Case(options={"long_prefill_token_threshold": 1}, longest_prompt=120),
    "prefix caching": Case(options={"max_num_batched_tokens": 256}),
    "prefix caching, whole prompts": Case(options={"enable_chunked_prefill": False}),
    "pressure": Case(options=TIGHT | {"max_num_batched_tokens": 128, "enable_prefix_caching": False}, preempts=True),
    "pressure, prefix caching": Case(options=TIGHT | {"max_num_batched_tokens": 128}, preempts=True),
    "pressure, whole prompts": Case(options=TIGHT | {"enable_chunked_prefill": False}, preempts=True),
    "pressure, priorities": Case(
        options=TIGHT | {"max_num_batched_tokens": 64, "scheduling_policy": "priority"}, preempts=True
    ),
    "pressure, priorities, chunks of 7": Case(
        options=TIGHT | {"long_prefill_token_threshold": 7, "scheduling_policy": "priority"}, preempts=True
    ),
    "interleave off": Case(
        options={"max_num_batched_tokens": 64, "additional_config": {"tt": {"decode_interleave_enabled": False}}}
    ),
    "long prompts": Case(
        options={"max_model_len": 4096, "num_gpu_blocks_override": 300, "max_num_seqs": 8},
        longest_prompt=4000,
    ),
}


@dataclass
class Request:
    """A request and, once known, how it ended."""

    prompt: list
    count: int
    priority: int
    abort_after: int | None
    """Steps after its arrival at which it is aborted."""


def make_requests(case, rng, number):
    """``number`` requests by id."""
    common = [rng.randrange(16, VOCAB_SIZE) for _ in range(case.longest_prompt)]
    requests = {}
    for i in range(number):
        longest = case.longest_prompt
        length = rng.choice([1, 2, rng.randint(1, 32), rng.randint(1, longest), rng.randint(1, longest)])
        kept = rng.randint(0, length) if rng.random() < case.shared else 0
        own = [rng.randrange(16, VOCAB_SIZE) for _ in range(length - kept)]
        abort_after = rng.choice([0, 1, 2, rng.randint(0, 200)]) if rng.random() < case.aborts else None
        requests[f"r{i}"] = Request(
            common[:kept] + own, rng.randint(1, case.longest_output), rng.randint(0, 2), abort_after
        )
    return requests


def soak(running, case, seed, number):
    """Run ``number`` requests with random arrivals; returns the ids that were preempted.

    Raises AssertionError at the first wrong token, book that does not balance, or thing left behind.
    """
    rng = random.Random(seed)
    requests = make_requests(case, rng, number)
    names = {req_id: f"{seed}-{req_id}" for req_id in requests}
    to_come, due, aborted, preempted, now = list(requests), {}, set(), set(), 0
    while to_come or running.busy:
        while to_come and rng.random() < 0.4:
            req_id = to_come.pop()
            request = requests[req_id]
            running.add(names[req_id], request.prompt, max_tokens=request.count, priority=request.priority)
            if request.abort_after is not None:
                due.setdefault(now + request.abort_after, []).append(req_id)
        for req_id in due.pop(now, ()):
            if names[req_id] not in running.finished:
                running.abort(names[req_id])
                aborted.add(req_id)
        running.step()
        now += 1
        preempted |= {r.request_id for r in running.core.scheduler.requests.values() if r.num_preemptions}
    assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}
    assert running.core.scheduler.slots_held == 0
    for req_id, request in requests.items():
        tokens, expected = running.tokens.pop(names[req_id]), expected_tokens(request.prompt, request.count)
        if req_id in aborted:
            expected = expected[: len(tokens)]
        assert tokens == expected, f"{req_id} of seed {seed}"
    return preempted


def run_case(checkpoint, name, *, asynchronous, seed, number):
    """An engine for the case, and one workload on it."""
    case = CASES[name]
    running = Engine(checkpoint, async_scheduling=asynchronous, **ENGINE | case.options)
    try:
        assert running.config.scheduler_config.async_scheduling is asynchronous
        preempted = soak(running, case, seed, number)
        assert bool(preempted) or not case.preempts, "nothing was preempted"
    finally:
        running.core.shutdown()
