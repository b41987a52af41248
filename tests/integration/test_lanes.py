"""Two lanes in one engine, on the oracle: what a lane's requests see of the others is nothing."""

import random

import pytest
from engine import engine
from oracle import VOCAB_SIZE, expected_tokens
from oracle_device import SAMPLES, device
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import RequestStatus

LANES = SAMPLES | {"supports_lanes": True}
OPTIONS = {
    "max_model_len": 512,
    "max_num_seqs": 4,
    "block_size": 32,
    "max_num_batched_tokens": 128,
    "num_gpu_blocks_override": 18,
}


def lanes(checkpoint, **more):
    tt = {"lanes": 2, "sample_on_device_mode": "all"}
    return engine(checkpoint, additional_config={"tt": tt}, **OPTIONS | more)


@pytest.fixture
def declared(checkpoint):
    """The oracle's device with lanes; asked for after the checkpoint, whose bundle is registered by then."""
    with device(LANES, contract=1):
        yield


def prompts(count, seed=3):
    rng = random.Random(seed)
    return [[rng.randrange(16, VOCAB_SIZE) for _ in range(rng.randint(1, 60))] for _ in range(count)]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.usefixtures("declared")
def test_requests_spread_over_the_lanes_and_stay(checkpoint, asynchronous):
    with lanes(checkpoint, async_scheduling=asynchronous) as running:
        for number, prompt in enumerate(prompts(16)):
            running.add(f"r{number}", prompt, max_tokens=40)
        assert [len(lane.requests) for lane in running.core.scheduler.lanes] == [8, 8]
        slots = {}
        while running.busy:
            running.step()
            plan = running.plans[-1]
            for req_id, slot in zip(plan.req_ids, plan.slots.tolist(), strict=True):
                slots.setdefault(req_id, set()).add(slot // 4)
        assert {req_id: {int(req_id[1:]) % 2} for req_id in slots} == slots
        for number, prompt in enumerate(prompts(16)):
            assert running.tokens[f"r{number}"] == expected_tokens(prompt, 40)
        assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}


@pytest.mark.usefixtures("declared")
def test_a_full_lane_leaves_its_pages_to_nobody_else(checkpoint):
    with lanes(checkpoint) as running:
        long = [prompt * 10 for prompt in prompts(8)]
        for number, prompt in enumerate(long):
            running.add(f"r{number}", prompt[:400], max_tokens=60)
        running.run()
        for number, prompt in enumerate(long):
            assert running.tokens[f"r{number}"] == expected_tokens(prompt[:400], 60)
        assert any(lane.slots_held == 0 for lane in running.core.scheduler.lanes)


@pytest.mark.usefixtures("declared")
def test_the_whole_engine_in_numbers(checkpoint):
    with lanes(checkpoint) as running:
        core, scheduler = running.core, running.core.scheduler
        for number, prompt in enumerate(prompts(6)):
            running.add(f"r{number}", prompt, max_tokens=30)
        assert scheduler.get_request_counts() == (0, 6)
        running.step()
        assert scheduler.get_num_unfinished_requests() == 6
        assert scheduler.has_request("r3")
        assert 0 < scheduler.get_kv_cache_usage() < 1
        assert isinstance(core, EngineCore)
        aborted = scheduler.finish_requests(["r1", "r4", "unknown"], RequestStatus.FINISHED_ABORTED)
        assert {request.request_id for request in aborted} == {"r1", "r4"}
        assert scheduler.has_finished_requests()
        running.run()
        assert not scheduler.has_request("r3")
        assert scheduler.get_request_counts() == (0, 0)
        assert scheduler.reset_prefix_cache()
        assert running.tokens["r0"] == expected_tokens(prompts(6)[0], 30)


@pytest.mark.usefixtures("declared")
def test_an_id_may_be_used_again(checkpoint):
    with lanes(checkpoint) as running:
        for _ in range(2):
            running.add("again", [20, 21], max_tokens=3)
            running.run()
            assert running.tokens["again"] == expected_tokens([20, 21], 3)
