"""The same seed, prompt and parameters give the same tokens wherever and whenever a request runs."""

import random

import pytest
from engine import engine
from oracle import write_checkpoint
from oracle_device import SAMPLES, device
from soaking import ENGINE, TIGHT

SEEDS = [5, 2**32 + 5, -2, 2**63 - 1]
WARM = {"temperature": 1.0, "max_tokens": 60}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An oracle whose preferred token is hardly more likely than any other, so that the draw decides."""
    return write_checkpoint(tmp_path_factory.mktemp("warm") / "model", chosen_logit=2.0)


def generate(checkpoint, order, *, resets=(), **options):
    """``resets``: steps before which every request is preempted."""
    rng = random.Random(3)
    prompts = [[rng.randrange(16, 512) for _ in range(rng.randint(20, 150))] for _ in range(8)]
    with engine(checkpoint, **ENGINE | options) as running:
        for number in order:
            running.add(f"r{number}", prompts[number], seed=SEEDS[number // 2], **WARM)
            running.step()
        step = len(order)
        while running.busy:
            if step in resets:
                running.core.reset_prefix_cache(reset_running_requests=True)
            running.step()
            step += 1
        return dict(sorted(running.tokens.items()))


@pytest.fixture(scope="module")
def alone(checkpoint):
    """Each request by itself."""
    return generate(checkpoint, range(8), max_num_seqs=1, async_scheduling=False)


ORDER = [3, 7, 0, 4, 6, 1, 2, 5]
OPTIONS = {
    "sync": {"async_scheduling": False},
    "async": {"async_scheduling": True},
    "chunks": {"async_scheduling": True, "max_num_batched_tokens": 64},
    "preempted": {"async_scheduling": False, **TIGHT},
    "chunks, preempted, async": {"async_scheduling": True, "max_num_batched_tokens": 64, **TIGHT},
    "resets": {"async_scheduling": False, "resets": (13, 30, 44)},
    "resets, async": {"async_scheduling": True, "resets": (13, 30, 44)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_seeded_tokens_depend_on_nothing_else(checkpoint, alone, options):
    assert generate(checkpoint, ORDER, **options) == alone


def test_the_draws_are_draws(alone):
    assert all(len(set(tokens)) > 30 for tokens in alone.values())
    assert alone["r0"] != alone["r1"]


SAMPLES_ON_DEVICE = {"additional_config": {"tt": {"sample_on_device_mode": "all"}}}
DRAWS_SEEDED = SAMPLES | {"supports_device_seeds": True, "supports_row_logits": True}


@pytest.fixture(scope="module")
def alone_on_device(checkpoint):
    with device(DRAWS_SEEDED, contract=1):
        return generate(checkpoint, range(8), max_num_seqs=1, async_scheduling=False, **SAMPLES_ON_DEVICE)


@pytest.mark.parametrize("contract", [1, None])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_nor_do_those_that_a_device_draws(checkpoint, alone_on_device, options, contract):
    with device(DRAWS_SEEDED, contract=contract, COMPUTE="thread"):
        assert generate(checkpoint, ORDER, **options | SAMPLES_ON_DEVICE) == alone_on_device


def test_the_devices_draws_are_draws(alone, alone_on_device):
    assert all(len(set(tokens)) > 30 for tokens in alone_on_device.values())
    assert not set(map(tuple, alone.values())) & set(map(tuple, alone_on_device.values()))


@pytest.mark.parametrize("missing", ["supports_device_seeds", "supports_row_logits"])
def test_a_device_that_cannot_always_draw_them_never_does(checkpoint, alone, missing):
    declares = {name: value for name, value in DRAWS_SEEDED.items() if name != missing}
    with device(declares, contract=1):
        assert generate(checkpoint, ORDER, async_scheduling=True, **SAMPLES_ON_DEVICE) == alone
