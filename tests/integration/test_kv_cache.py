"""The KV cache's size against the context that is asked for; what an adapter says wrongly ends the start."""

import logging

import numpy as np
import pytest
from engine import Engine, engine
from oracle import expected_tokens

from vllm_tt.models.registry import registry
from vllm_tt.worker.forward import IncompleteAdapter
from vllm_tt.worker.kv_cache import ContextTooLong, NoPages, WrongSpecs, WrongTokenCount

POOL = 1024
ROWS = {"max_num_seqs": 2, "block_size": 32, "max_num_batched_tokens": 2048}
OWNER = "PagedHashForCausalLM"


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setenv("PAGED_HASH_MAX_TOKENS", str(POOL))


@pytest.fixture
def adapter():
    return registry().entries["TTPagedHashForCausalLM"].load()


@pytest.fixture
def refused(checkpoint, caplog):
    """``refused(error, **options)``: the message of the error that ends the start, with the mesh closed."""

    def start(error, **options):
        with caplog.at_level(logging.INFO, "vllm.tt"), pytest.raises(error) as caught:
            Engine(checkpoint, **ROWS | {"max_model_len": 512} | options)
        assert "Mesh device closed, fabric is DISABLED" in caplog.messages
        return str(caught.value)

    return start


@pytest.mark.parametrize(("asked", "served"), [(512, 512), (POOL, POOL), (-1, POOL)])
def test_a_context_that_the_pool_holds_is_served_to_its_last_token(pool, checkpoint, asked, served):
    with engine(checkpoint, max_model_len=asked, **ROWS) as running:
        assert running.config.model_config.max_model_len == served
        prompt = [20 + i % 400 for i in range(served - 1)]
        running.add("long", prompt)
        running.add("half", prompt[: served // 2], max_tokens=served)
        running.run()
        assert running.tokens["long"] == expected_tokens(prompt, 1)
        assert running.tokens["half"] == expected_tokens(prompt[: served // 2], served - served // 2)
        held = running.config.cache_config.num_gpu_blocks
        assert held == POOL // 32 + ROWS["max_num_seqs"]
        assert running.core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks == held


@pytest.mark.parametrize(("asked", "named"), [(POOL + 1, POOL + 1), (None, 4096)])
def test_a_longer_one_is_refused_with_the_longest_that_fits(pool, checkpoint, refused, asked, named):
    assert refused(ContextTooLong, max_model_len=asked) == (
        f"--max-model-len {named} does not fit: the KV cache of {checkpoint} holds {POOL} tokens on this mesh. "
        f"Use --max-model-len {POOL} or less, or -1 for the longest that fits."
    )


@pytest.mark.parametrize("said", [None, True, "5", 0, -1, 1.5, 10**15], ids=str)
def test_a_count_of_tokens_that_is_none_is_refused(adapter, refused, monkeypatch, said):
    monkeypatch.setattr(adapter, "get_max_tokens_all_users", lambda **_: said)
    assert refused(WrongTokenCount) == (
        f"{OWNER}.get_max_tokens_all_users() must return a number of tokens from 1 to 268435456, got {said!r}."
    )


def test_a_count_of_numpy_is_a_count(adapter, checkpoint, monkeypatch):
    monkeypatch.setattr(adapter, "get_max_tokens_all_users", lambda **_: np.int64(POOL))
    with engine(checkpoint, max_model_len=512, **ROWS) as running:
        assert running.config.cache_config.num_gpu_blocks == POOL // 32 + ROWS["max_num_seqs"]


@pytest.mark.parametrize("said", [{}, 5, {"layer": 3}], ids=str)
def test_specs_of_another_form_are_refused(adapter, refused, monkeypatch, said):
    monkeypatch.setattr(adapter, "get_kv_cache_spec", lambda _: said, raising=False)
    assert refused(WrongSpecs) == (
        f"{OWNER}.get_kv_cache_spec() must return a dict of vLLM's KV cache specs by layer name, or None for full "
        f"attention in every layer; got {said!r}."
    )


def test_an_override_without_a_page_for_requests_is_refused(refused):
    assert refused(NoPages, num_gpu_blocks_override=1) == (
        "--num-gpu-blocks-override 1 leaves no page for requests: one is the null page. Use at least 2."
    )


METHODS = [
    "get_max_tokens_all_users",
    "get_kv_cache_spec",
    "initialize_vllm_model",
    "allocate_kv_cache",
    "warmup_model_prefill",
    "warmup_model_decode",
]


@pytest.mark.parametrize("method", METHODS)
def test_an_error_of_the_adapter_ends_the_start_as_it_is(adapter, refused, monkeypatch, method):
    def fail(*_, **__):
        raise KeyError(method)

    monkeypatch.setattr(adapter, method, fail, raising=False)
    assert refused(KeyError) == repr(method)


def test_an_adapter_that_forgets_to_return_itself_is_told_so(adapter, refused, monkeypatch):
    monkeypatch.setattr(adapter, "initialize_vllm_model", lambda *_, **__: None)
    assert refused(IncompleteAdapter) == (
        f"{OWNER}.initialize_vllm_model() returned None that cannot be served: it has no prefill_forward() and no "
        "decode_forward() and no warmup_model_prefill() and no warmup_model_decode() and no allocate_kv_cache()."
    )
