"""Layers of full and of sliding-window attention in one model: several KV cache groups over one pool."""

import random
from dataclasses import replace

import pytest
import torch
from engine import Engine, engine
from layered import WINDOW, expected_tokens, write_checkpoint
from oracle import VOCAB_SIZE
from vllm.v1.kv_cache_interface import MambaSpec

from vllm_tt.models.registry import registry
from vllm_tt.worker.kv_cache import ContextTooLong, UnservedSpec
from vllm_tt.worker.kv_groups import KVGroups

OPTIONS = {"max_model_len": 512, "max_num_seqs": 4, "block_size": 32, "max_num_batched_tokens": 64}
PAGES = 1 + 16 + 2 * 7
"""The null page, 512 tokens of full attention, and two groups of windows of 50 behind two steps of 64 tokens."""


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
    "asynchronous": {"async_scheduling": True},
    "pressure": {"num_gpu_blocks_override": PAGES, "async_scheduling": True},
}


@pytest.mark.parametrize("case", CASES)
def test_every_token_is_that_of_what_each_layer_sees(layered, case):
    asked = {f"r{i}": prompt for i, prompt in enumerate(prompts(24, 280))}
    with engine(layered, **OPTIONS | {"async_scheduling": False} | CASES[case]) as running:
        for name, prompt in asked.items():
            running.add(name, prompt, max_tokens=60)
        running.run()
        assert running.config.scheduler_config.async_scheduling is CASES[case].get("async_scheduling", False)
        groups = running.core.scheduler.kv_cache_config.kv_cache_groups
        assert [len(group.layer_names) for group in groups] == [2, 2, 2]
        assert running.tokens == {name: expected_tokens(prompt, 60) for name, prompt in asked.items()}
        assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}


WAYS = {
    "chunks": {},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 512},
    "prefix caching": {"enable_prefix_caching": True, "max_num_batched_tokens": 48},
}
LEAST = {
    ("chunks", False): 27,
    ("chunks", True): 31,
    ("whole prompts", False): 51,
    ("whole prompts", True): 51,
    ("prefix caching", False): 27,
    ("prefix caching", True): 29,
}
"""Pages of the smallest pool for 512 tokens: with two steps in flight windows give back later."""


@pytest.mark.parametrize("ahead", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("way", WAYS)
def test_the_smallest_pool_serves_its_longest_request_to_the_last_token(layered, way, ahead):
    options = OPTIONS | {"enable_prefix_caching": False, "async_scheduling": ahead} | WAYS[way]
    pages = LEAST[way, ahead]
    with pytest.raises(ContextTooLong):
        Engine(layered, **options, num_gpu_blocks_override=pages - 1)
    with engine(layered, **options, num_gpu_blocks_override=pages) as running:
        asked = {f"r{i}": (prompts(1, 400, seed=i)[0] + [20] * 511)[:length] for i, length in enumerate([511, 400, 40])}
        for name, prompt in asked.items():
            running.add(name, prompt, max_tokens=512)
        running.run()
        assert running.tokens == {name: expected_tokens(prompt, 512 - len(prompt)) for name, prompt in asked.items()}


def test_the_longest_context_is_what_the_windows_leave(layered):
    with engine(layered, **OPTIONS | {"max_model_len": -1}, num_gpu_blocks_override=PAGES - 4) as running:
        longest = running.config.model_config.max_model_len
        assert longest == 512 - 4 * 32
        prompt = [20 + i % 400 for i in range(longest - 1)]
        running.add("r", prompt)
        running.run()
        assert running.tokens["r"] == expected_tokens(prompt, 1)
    with pytest.raises(ContextTooLong) as caught:
        Engine(layered, **OPTIONS, num_gpu_blocks_override=PAGES - 4)
    assert str(caught.value) == (
        f"--max-model-len 512 does not fit: the KV cache of {layered} holds 384 tokens on this mesh. "
        "Use --max-model-len 384 or less, or -1 for the longest that fits."
    )


def test_a_spec_that_is_not_attention_is_refused_with_the_mesh_closed(layered, monkeypatch, caplog):
    spec = MambaSpec(block_size=32, shapes=((4, 4),), dtypes=(torch.float32,))
    adapter = registry().entries["TTPagedHashLayersForCausalLM"].load()
    monkeypatch.setattr(adapter, "get_kv_cache_spec", lambda _: {"model.layers.0.mixer": spec})
    with caplog.at_level("INFO", "vllm.tt"), pytest.raises(UnservedSpec) as caught:
        Engine(layered, **OPTIONS)
    assert "Mesh device closed, fabric is DISABLED" in caplog.messages
    assert str(caught.value) == (
        "PagedHashLayersForCausalLM.get_kv_cache_spec() gives model.layers.0.mixer a MambaSpec; layers may have full "
        "attention, a sliding window or chunked local attention. State that is kept for each request is the adapter's "
        "own, by slot, and has no spec."
    )


def one_table(monkeypatch):
    monkeypatch.setattr(KVGroups, "per_layer", lambda groups, tables: [tables[groups.main]] * len(groups.specs))


def one_buffer(monkeypatch):
    shapes = KVGroups.shapes
    monkeypatch.setattr(KVGroups, "shapes", lambda *args: [(shape, dtype, 0) for shape, dtype, _ in shapes(*args)])


def short_window(monkeypatch):
    adapter = registry().entries["TTPagedHashLayersForCausalLM"].load()
    declared = adapter.get_kv_cache_spec

    def shortened(config):
        short = {"sliding_window": WINDOW - 1}
        specs = declared(config).items()
        return {layer: replace(spec, **short) if spec.sliding_window else spec for layer, spec in specs}

    monkeypatch.setattr(adapter, "get_kv_cache_spec", shortened)


def nothing(_):
    """What the others are measured against."""


@pytest.mark.parametrize("broken", [nothing, one_table, one_buffer, short_window])
def test_the_oracle_sees_what_is_mixed_up(layered, monkeypatch, broken):
    broken(monkeypatch)
    asked = {f"r{i}": prompt for i, prompt in enumerate(prompts(16, 280))}
    # A window of 50 looks back to three pages of 16 and a token: one token less is a page less.
    options = OPTIONS | {"block_size": 16, "async_scheduling": False, "num_gpu_blocks_override": 300}
    with engine(layered, **options) as running:
        for name, prompt in asked.items():
            running.add(name, prompt, max_tokens=60)
        try:
            running.run()
            exact = running.tokens == {name: expected_tokens(prompt, 60) for name, prompt in asked.items()}
        except AssertionError:  # the adapter saw it
            exact = False
    assert exact is (broken is nothing)
