from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from by_transformers import greedy
from tools.tiny_models.write import make, spread
from transformers import Qwen3MoeForCausalLM as Reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 16
PROMPTS = {2: [7], 0: [(5 * i * i + 3) % 320 for i in range(61)], 3: [(11 * i * i + 8) % 320 for i in range(20)]}
"""By slot."""
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights of experts as they are": {"norm_topk_prob": False},
    "experts in every second layer": {"decoder_sparse_step": 2, "mlp_only_layers": []},
    "no experts": {"num_experts": 0},
    "biases": {"attention_bias": True},
    "tied": {"tie_word_embeddings": True},
    "a window": {"use_sliding_window": True, "sliding_window": 24},
}


@pytest.fixture
def served(serve_checkpoint: Any, bundle_module: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """``served(**overrides)``: the adapter over a tiny checkpoint, and transformers' model of it."""

    def serve(**overrides: Any) -> tuple[Any, Any]:
        config = make("qwen3_moe")[0].config.to_dict() | overrides
        torch.manual_seed(9)
        model = Reference(Reference.config_class(**config)).eval()
        spread(model)
        model.save_pretrained(tmp_path)
        return serve_checkpoint(bundle_module("qwen3-moe-host").Qwen3MoeForCausalLM, tmp_path), model

    return serve


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_greedy_tokens_and_logits_equal_transformers(name: str, served: Any) -> None:
    adapter, model = served(**CONFIGURATIONS[name])
    expected = {slot: greedy(model, tokens, COUNT) for slot, tokens in PROMPTS.items()}
    assert adapter.generate(PROMPTS, COUNT) == {slot: tokens for slot, (tokens, _) in expected.items()}
    for slot, (tokens, logits) in expected.items():
        row = adapter.decode({slot: (tokens[4], len(PROMPTS[slot]) + 4)})[slot]
        torch.testing.assert_close(row, logits[5], rtol=1e-3, atol=1e-3)


def test_parameters_have_the_names_of_checkpoints(served: Any) -> None:
    adapter, _ = served()
    names = {name for name, _ in adapter.adapter.model.named_parameters()}
    assert {
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.mlp.experts.7.down_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.1.mlp.gate_proj.weight",
        "model.norm.weight",
    } <= names
