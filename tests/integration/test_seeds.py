"""The same seed, prompt and parameters give the same tokens wherever and whenever a request runs."""

import random

import pytest
from engine import engine
from oracle import write_checkpoint
from soaking import ENGINE, TIGHT

WARM = {"temperature": 1.0, "max_tokens": 60}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An oracle whose preferred token is hardly more likely than any other, so that the draw decides."""
    return write_checkpoint(tmp_path_factory.mktemp("warm") / "model", chosen_logit=2.0)


def generate(checkpoint, order, **options):
    rng = random.Random(3)
    prompts = [[rng.randrange(16, 512) for _ in range(rng.randint(20, 150))] for _ in range(8)]
    with engine(checkpoint, **ENGINE | options) as running:
        for number in order:
            running.add(f"r{number}", prompts[number], seed=number // 2, **WARM)
            running.step()
        running.run()
        return dict(sorted(running.tokens.items()))


@pytest.fixture(scope="module")
def alone(checkpoint):
    """Each request by itself."""
    return generate(checkpoint, range(8), max_num_seqs=1, async_scheduling=False)


@pytest.mark.parametrize(
    "options",
    [
        {"async_scheduling": False},
        {"async_scheduling": True},
        {"async_scheduling": True, "max_num_batched_tokens": 64},
        {"async_scheduling": False, **TIGHT},
        {"async_scheduling": True, "max_num_batched_tokens": 64, **TIGHT},
    ],
    ids=["sync", "async", "chunks", "preempted", "chunks, preempted, async"],
)
def test_seeded_tokens_depend_on_nothing_else(checkpoint, alone, options):
    assert generate(checkpoint, [3, 7, 0, 4, 6, 1, 2, 5], **options) == alone


def test_the_draws_are_draws(alone):
    assert all(len(set(tokens)) > 30 for tokens in alone.values())
    assert alone["r0"] != alone["r1"]
