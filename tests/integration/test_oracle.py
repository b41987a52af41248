"""The oracle through vLLM's engine, our scheduler and our worker: every token of every request.

A failing case prints its seed; ORACLE_SEED replays it.
"""

import os
import random

import pytest
from engine import engine
from oracle import VOCAB_SIZE, expected_tokens

CASES = {
    "plain": {"enable_chunked_prefill": False, "enable_prefix_caching": False},
    "chunked": {"max_num_batched_tokens": 64, "enable_prefix_caching": False},
    "tiny chunks": {"max_num_batched_tokens": 8, "enable_prefix_caching": False},
    "prefix caching": {"max_num_batched_tokens": 256},
    "pressure": {"num_gpu_blocks_override": 18, "max_num_batched_tokens": 128, "enable_prefix_caching": False},
    "pressure, whole prompts": {"num_gpu_blocks_override": 18, "enable_chunked_prefill": False},
    "pressure, priorities": {
        "num_gpu_blocks_override": 18,
        "max_num_batched_tokens": 64,
        "scheduling_policy": "priority",
    },
}


def workload(rng, count, longest):
    """Prompts, half of them with a shared beginning, and how many tokens each asks for."""
    shared = [rng.randrange(16, VOCAB_SIZE) for _ in range(longest)]
    for number in range(count):
        length = rng.choice([1, 2, rng.randint(1, 32), rng.randint(1, longest)])
        own = [rng.randrange(16, VOCAB_SIZE) for _ in range(length)]
        kept = rng.randint(0, length) if rng.random() < 0.5 else 0
        yield f"r{number}", shared[:kept] + own[kept:], rng.randint(1, 80)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("case", CASES)
def test_every_surviving_request_is_exact(checkpoint, case, asynchronous):
    seed = int(os.environ.get("ORACLE_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    options = {"max_model_len": 512, "max_num_seqs": 6, "block_size": 32, "max_num_batched_tokens": 512}
    with engine(checkpoint, async_scheduling=asynchronous, **options | CASES[case]) as running:
        assert running.config.scheduler_config.async_scheduling is asynchronous
        requests = {req_id: (prompt, count) for req_id, prompt, count in workload(rng, 50, 300)}
        to_come, aborted, preempted = list(requests), set(), set()
        while to_come or running.busy:
            while to_come and rng.random() < 0.4:
                req_id = to_come.pop()
                prompt, count = requests[req_id]
                running.add(req_id, prompt, max_tokens=count, priority=rng.randint(0, 2))
            if rng.random() < 0.03 and (live := [r for r in running.tokens if r not in running.finished]):
                victim = rng.choice(live)
                running.abort(victim)
                aborted.add(victim)
            running.step()
            preempted |= {r.request_id for r in running.core.scheduler.requests.values() if r.num_preemptions}
        assert bool(preempted) is case.startswith("pressure")
        assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}
        assert running.core.scheduler.slots_held == 0
        for req_id, (prompt, count) in requests.items():
            expected = expected_tokens(prompt, count)
            if req_id in aborted and running.finished.get(req_id) is None:
                assert running.tokens[req_id] == expected[: len(running.tokens[req_id])]
            else:
                assert running.tokens[req_id] == expected
