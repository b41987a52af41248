"""Layers of full and of sliding-window attention in one model: several KV cache groups over one pool."""

import random

import pytest
from engine import engine
from layered import expected_tokens, write_checkpoint
from oracle import VOCAB_SIZE

OPTIONS = {"max_model_len": 512, "max_num_seqs": 4, "block_size": 32, "max_num_batched_tokens": 64}
PAGES = 16 + 2 * 5
"""Pages of 512 tokens with full attention, and of two groups of windows of 48 with a chunk of 64 ahead of them."""


@pytest.fixture(scope="module")
def layered(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("layered") / "model")


def prompts(count, longest, seed=5):
    rng = random.Random(seed)
    shared = [rng.randrange(16, VOCAB_SIZE) for _ in range(150)]
    made = []
    for _ in range(count):
        own = [rng.randrange(16, VOCAB_SIZE) for _ in range(rng.randint(1, longest))]
        made.append(shared[: rng.randint(0, 150)] + own if rng.random() < 0.5 else own)
    return made


CASES = {
    "chunks": {"enable_prefix_caching": False},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 512, "enable_prefix_caching": False},
    "prefix caching": {},
    "asynchronous": {"async_scheduling": True},
    "pressure": {"num_gpu_blocks_override": PAGES + 16, "enable_prefix_caching": False},
    "pressure, prefix caching": {"num_gpu_blocks_override": PAGES + 16, "async_scheduling": True},
}


@pytest.mark.parametrize("case", CASES)
def test_every_token_is_that_of_what_each_layer_sees(layered, case):
    asked = {f"r{i}": prompt for i, prompt in enumerate(prompts(24, 280))}
    with engine(layered, **OPTIONS | {"async_scheduling": False} | CASES[case]) as running:
        for name, prompt in asked.items():
            running.add(name, prompt, max_tokens=60)
        running.run()
        groups = running.core.scheduler.kv_cache_config.kv_cache_groups
        assert [len(group.layer_names) for group in groups] == [2, 2, 2]
        assert running.tokens == {name: expected_tokens(prompt, 60) for name, prompt in asked.items()}
        assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}
