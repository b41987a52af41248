"""One function a family: its model by transformers' own classes, and what is saved beside it.

Each has every trait of its family that an implementation may get wrong, in as few layers as show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FAMILIES"]


def qwen3_moe() -> tuple[Any, ...]:
    """Norms of query and key heads; routed experts, but in the second layer, where the feed-forward block is dense."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=48,
        norm_topk_prob=True,
        mlp_only_layers=[1],
        dtype="float32",
    )
    return (Qwen3MoeForCausalLM(config),)


def qwen3_5() -> tuple[Any, ...]:
    """Delta nets with fewer key heads than value heads, most of which remember for long, and gated attention."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=24,
        max_position_embeddings=2048,
        dtype="float32",
    )
    model = Qwen3_5ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            torch.nn.init.uniform_(parameter, -5.0, 0.0)
    return (model,)


FAMILIES: Mapping[str, Callable[[], tuple[Any, ...]]] = {
    "qwen3_5": qwen3_5,
    "qwen3_moe": qwen3_moe,
}
"""By the name of the family; the model first."""
