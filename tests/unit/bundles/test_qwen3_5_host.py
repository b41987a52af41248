from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from by_transformers import greedy
from tools.tiny_models.write import make, spread
from transformers import Qwen3_5ForCausalLM as Reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 16
PROMPTS = {2: [7], 0: [(5 * i * i + 3) % 320 for i in range(90)], 3: [(11 * i * i + 8) % 320 for i in range(20)]}
"""By slot."""
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "as many key heads as value heads": {"linear_num_key_heads": 4},
    "attention first": {"layer_types": ["full_attention", "linear_attention"], "num_hidden_layers": 2},
    "no attention layer alike": {"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
    "a longer convolution, more of a head rotated": {
        "linear_conv_kernel_dim": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "biases, tied": {"attention_bias": True, "tie_word_embeddings": True},
}


@pytest.fixture
def served(serve_checkpoint: Any, bundle_module: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """``served(**overrides)``: the adapter over a tiny checkpoint, and transformers' model of it."""

    def serve(**overrides: Any) -> tuple[Any, Any]:
        config = make("qwen3_5")[0].config.to_dict() | overrides
        torch.manual_seed(9)
        model = Reference(Reference.config_class(**config)).eval()
        spread(model)
        model.save_pretrained(tmp_path)
        return serve_checkpoint(bundle_module("qwen3_5-host").Qwen35ForCausalLM, tmp_path), model

    return serve


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_greedy_tokens_equal_transformers(name: str, served: Any) -> None:
    adapter, model = served(**CONFIGURATIONS[name])
    expected = {slot: greedy(model, tokens, COUNT)[0] for slot, tokens in PROMPTS.items()}
    assert adapter.generate(PROMPTS, COUNT) == expected
    # In the same slots again, which hold the state of those that ended.
    assert adapter.generate({3: PROMPTS[0]}, COUNT) == {3: expected[0]}


def test_a_prompt_in_chunks_goes_on_while_others_decode(served: Any) -> None:
    adapter, model = served()
    other, prompt = PROMPTS[3], PROMPTS[0]
    first = int(adapter.prefill((1, other, 0, len(other))).argmax())
    adapter.prefill((2, prompt, 0, 30))
    row = adapter.decode({1: (first, len(other))})[1]
    last = adapter.prefill((2, prompt, 30, len(prompt)))[0]
    assert [first, int(row.argmax())] == greedy(model, other, COUNT)[0][:2]
    assert int(last.argmax()) == greedy(model, prompt, COUNT)[0][0]


def test_the_kv_cache_has_the_layers_of_attention(bundle_module: Any) -> None:
    config = make("qwen3_5")[0].config
    model = SimpleNamespace(hf_text_config=config, dtype=torch.float32)
    vllm_config = SimpleNamespace(model_config=model, cache_config=SimpleNamespace(block_size=64))
    specs = bundle_module("qwen3_5-host").Qwen35ForCausalLM.get_kv_cache_spec(vllm_config)
    assert list(specs) == ["model.layers.1.self_attn", "model.layers.3.self_attn"]
    assert {(spec.block_size, spec.num_kv_heads, spec.head_size) for spec in specs.values()} == {(64, 2, 32)}


def test_prefix_caching_is_all_that_is_not_declared(bundle_module: Any) -> None:
    adapter = bundle_module("qwen3_5-host").Qwen35ForCausalLM
    declared = adapter.__base__.model_capabilities
    assert adapter.model_capabilities == {
        name: value for name, value in declared.items() if name != "supports_prefix_caching"
    }
