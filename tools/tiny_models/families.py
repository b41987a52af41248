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


def qwen2_5_vl() -> tuple[Any, ...]:
    """Windows and full attention in the vision tower; rotary sections of unequal size. Images become 4 to 64 tokens."""
    from tools.tiny_models.chat import Settings, byte_tokenizer
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    roles = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    roles |= {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    tokenizer = byte_tokenizer(*roles.values())
    patches = {"patch_size": 4, "temporal_patch_size": 2}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 272,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]},
            "bos_token_id": None,
            "eos_token_id": None,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "window_size": 16,
            "fullatt_block_indexes": [1],
            "out_hidden_size": 64,
            **patches,
        },
        **{f"{role}_token_id": tokenizer.convert_tokens_to_ids(mark) for role, mark in roles.items()},
        dtype="float32",
    )
    processor = Settings(
        name="preprocessor_config.json",
        values={
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
            "min_pixels": 16 * 16,
            "max_pixels": 64 * 64,
            "merge_size": 2,
            **patches,
        },
    )
    return Qwen2_5_VLForConditionalGeneration(config), tokenizer, processor


def gemma3() -> tuple[Any, ...]:
    """Windows of no whole number of pages in four layers of six; rotation and scale of scores that are not defaults."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=6,
        sliding_window_pattern=3,
        sliding_window=20,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        query_pre_attn_scalar=24,
        max_position_embeddings=2048,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
        bos_token_id=None,
        eos_token_id=None,
        dtype="float32",
    )
    model = Gemma3ForCausalLM(config)
    # Embeddings are tied: with weights of one sign, the last token would mostly be the likeliest.
    torch.nn.init.normal_(model.model.norm.weight, mean=-1.0)
    return (model,)


FAMILIES: Mapping[str, Callable[[], tuple[Any, ...]]] = {
    "gemma3": gemma3,
    "qwen3_5": qwen3_5,
    "qwen3_moe": qwen3_moe,
    "qwen2_5_vl": qwen2_5_vl,
}
"""By the name of the family; the model first."""
