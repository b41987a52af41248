from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from by_transformers import greedy
from transformers import LlamaConfig, MistralConfig, MistralForCausalLM
from transformers import LlamaForCausalLM as Reference

from vllm_tt.contract import DeviceSamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VOCAB = 199
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "every query head its own": {"num_key_value_heads": 6},
    "one key head": {"num_key_value_heads": 1},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 20},
    "gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.5}, "max_position_embeddings": 16},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "yarn with its own attention factor": {"rope_scaling": {**YARN, "attention_factor": 0.7, "truncate": False}},
    "yarn with magnitudes": {"rope_scaling": {**YARN, "mscale": 1.5, "mscale_all_dim": 0.8, "beta_fast": 20}},
    "longrope": {
        "rope_scaling": {
            "rope_type": "longrope",
            "factor": 4.0,
            "original_max_position_embeddings": 24,
            "short_factor": [1.0 + 0.1 * i for i in range(4)],
            "long_factor": [1.5 + 0.5 * i for i in range(4)],
        }
    },
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """``checkpoint(**overrides)``: a random model's folder, and transformers' model of it."""

    def make(dtype: torch.dtype = torch.float32, shard_size: str = "1GB", **overrides: Any) -> tuple[Path, Any]:
        torch.manual_seed(11)
        settings = {
            "vocab_size": VOCAB,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "max_position_embeddings": 128,
            "rope_theta": 500.0,
            "initializer_range": 0.2,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        model = Reference(LlamaConfig(**{**settings, **overrides})).to(dtype).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
        folder = tmp_path_factory.mktemp("checkpoint")
        model.save_pretrained(folder, max_shard_size=shard_size)
        return folder, model

    return make


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(f"{length} {seed}").choices(range(3, VOCAB), k=length)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_greedy_tokens_and_logits_equal_transformers(
    name: str, checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, model = checkpoint(**CHECKPOINTS[name])
    served = served_llama(folder)
    tokens = prompt(13)
    expected, logits = greedy(model, tokens, 20)

    first = served.prefill((2, tokens, 0, len(tokens)))
    torch.testing.assert_close(first[0], logits[0], rtol=1e-4, atol=1e-4)
    for i in range(19):
        row = served.decode({2: (expected[i], len(tokens) + i)})[2]
        torch.testing.assert_close(row, logits[i + 1], rtol=1e-4, atol=1e-4)
        assert int(row.argmax()) == expected[i + 1]


def test_a_batch_with_holes_and_shuffled_pages_gives_each_row_its_own_tokens(
    checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, model = checkpoint()
    served = served_llama(folder, slots=7)
    prompts = {5: prompt(1), 0: prompt(8), 3: prompt(31), 2: prompt(9)}
    tokens = served.generate(prompts, 24)
    assert tokens == {slot: greedy(model, row, 24)[0] for slot, row in prompts.items()}


@pytest.mark.parametrize("cuts", [(0, 8, 16, 29), (0, 1, 2, 29), (0, 5, 28, 29)])
def test_chunks_of_a_prompt_equal_the_whole(
    cuts: tuple[int, ...], checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, model = checkpoint()
    served = served_llama(folder)
    tokens, other = prompt(29), prompt(7)
    expected, logits = greedy(model, tokens, 1)
    for start, end in itertools.pairwise(cuts):
        # another row shares every call, and an unrelated prompt starts beside the first chunk
        rows = [(1, tokens, start, end)] + ([(3, other, 0, 7)] if not start else [])
        last = served.prefill(*rows)
    torch.testing.assert_close(last[0], logits[0], rtol=1e-4, atol=1e-4)
    token = int(served.decode({1: (expected[0], 29), 3: (5, 7)})[1].argmax())
    assert token == greedy(model, tokens, 2)[0][1]


def test_cached_pages_of_another_request_are_read_and_not_written(
    checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, model = checkpoint()
    served = served_llama(folder)
    shared = prompt(16)
    first, second = shared + prompt(5, 1), shared + prompt(9, 2)
    served.prefill((0, first, 0, len(first)))
    served.tables[1, :2] = served.tables[0, :2]
    before = [cache.keys[served.tables[0, :2]].clone() for cache in served.kv_cache]
    last = served.prefill((1, second, 16, len(second)))
    expected, logits = greedy(model, second, 2)
    torch.testing.assert_close(last[0], logits[0], rtol=1e-4, atol=1e-4)
    assert int(served.decode({1: (expected[0], len(second))})[1].argmax()) == expected[1]
    for cache, keys in zip(served.kv_cache, before, strict=True):
        assert torch.equal(cache.keys[served.tables[0, :2]], keys)


def test_idle_slots_write_nothing_and_warm_up_writes_the_null_page_only(
    checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, _ = checkpoint()
    served = served_llama(folder)
    served.adapter.warmup_model_prefill(enable_trace=False, kv_cache=served.kv_cache, can_sample_on_device=False)
    served.adapter.warmup_model_decode(
        enable_trace=False, kv_cache=served.kv_cache, can_sample_on_device=False, max_batch_size=4, num_blocks=16
    )
    for cache in served.kv_cache:
        assert cache.keys[0].any()
        assert not cache.keys[1:].any()
        assert not cache.values[1:].any()
    before = [cache.keys.clone() for cache in served.kv_cache]
    assert served.decode({}).shape == (4, VOCAB)
    assert all(torch.equal(cache.keys, old) for cache, old in zip(served.kv_cache, before, strict=True))


def test_page_ids_of_lanes_do_not_meet(checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any) -> None:
    folder, model = checkpoint()
    served = served_llama(folder, lanes=2)
    prompts = {0: prompt(10), 2: prompt(12), 3: prompt(20)}
    tokens = served.generate(prompts, 12)
    assert served.tables[0, 0] == served.tables[2, 0], "the same page id in both lanes"
    assert tokens == {slot: greedy(model, row, 12)[0] for slot, row in prompts.items()}


def test_the_kv_cache_decides_the_dtype(checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any) -> None:
    folder, _ = checkpoint(dtype=torch.bfloat16)
    tokens = prompt(20)
    for dtype, tolerance in ((torch.bfloat16, 0.05), (torch.float32, 1e-4)):
        logits = served_llama(folder, dtype=dtype).prefill((0, tokens, 0, 20))[0]
        expected = greedy(Reference.from_pretrained(folder, dtype=dtype), tokens, 1)[1][0]
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected.float(), rtol=tolerance, atol=tolerance)


def test_a_sharded_checkpoint_loads(checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any) -> None:
    folder, model = checkpoint(shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    tokens = prompt(9)
    assert served_llama(folder).generate({1: tokens}, 8) == {1: greedy(model, tokens, 8)[0]}


def decode_inputs(served: Any, rows: dict[int, tuple[int, int]], **more: Any) -> dict[str, Any]:
    """A decode's arguments, as the worker sends them: slot -> (token, position)."""
    slots = len(served.tables)
    tokens, start_pos = torch.zeros((slots, 1), dtype=torch.int32), torch.full((slots,), -1, dtype=torch.int32)
    for slot, (token, position) in rows.items():
        tokens[slot], start_pos[slot] = token, position
    return {
        "tokens": tokens,
        "start_pos": start_pos,
        "page_table": torch.from_numpy(served.tables.copy()),
        "kv_cache": served.kv_cache,
        "enable_trace": True,
        "sampling_params": DeviceSamplingParams.greedy(slots),
        "reload_page_table": False,
    } | more


def test_two_steps_in_flight_give_the_tokens_of_transformers(
    checkpoint: Callable[..., tuple[Path, Any]], served_llama: Any
) -> None:
    folder, model = checkpoint()
    served = served_llama(folder)
    prompts = {3: prompt(5), 0: prompt(11)}
    expected = {slot: greedy(model, tokens, 20)[0] for slot, tokens in prompts.items()}
    served.prefill(*[(slot, tokens, 0, len(tokens)) for slot, tokens in prompts.items()])
    for slot, tokens in prompts.items():
        served.grow(slot, len(tokens) + 20)
    adapter, found, unread = served.adapter, {slot: [row[0]] for slot, row in expected.items()}, []
    for step in range(19):
        known = {slot: (row[0], len(prompts[slot])) for slot, row in expected.items()} if step == 0 else {}
        more = dict.fromkeys(("reload_inputs", "reload_sampling_params", "reset_sampling_state"), step == 0)
        out = adapter.decode_forward(read_from_device=False, **decode_inputs(served, known, **more))
        unread.append(adapter.read_decode_output(out, async_read=True)[0])
        if len(unread) == 2:
            tokens = adapter.process_decode_output_host(unread.pop(0), is_tokens=True)
            found = {slot: [*row, int(tokens[slot])] for slot, row in found.items()}
    tokens = adapter.process_decode_output_host(unread.pop(), is_tokens=True)
    assert {slot: [*row, int(tokens[slot])] for slot, row in found.items()} == expected


def test_a_mistral_configuration_has_no_biases_to_name(tmp_path: Path, served_llama: Any) -> None:
    torch.manual_seed(11)
    config = MistralConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.2,
        sliding_window=None,
    )
    assert not hasattr(config, "mlp_bias")
    model = MistralForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    tokens = prompt(9)
    assert served_llama(tmp_path).generate({1: tokens}, 8) == {1: greedy(model, tokens, 8)[0]}


@pytest.mark.parametrize(
    ("length", "rows", "expected"), [(1024, 4, 4096), (8192, 32, 131_072), (200_000, 2, 200_000), (200_000, 1, 200_000)]
)
def test_tokens_of_all_users(llama_host: Any, length: int, rows: int, expected: int) -> None:
    tokens = llama_host.LlamaForCausalLM.get_max_tokens_all_users(
        model_name="m", num_devices=2, tt_data_parallel=1, max_model_len=length, max_num_seqs=rows
    )
    assert tokens == expected
