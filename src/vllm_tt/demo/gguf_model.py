"""Reads a Llama-architecture GGUF file as a checkpoint: configuration, weights, vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

__all__ = ["GGUFModel", "NotLlama"]

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class NotLlama(TTError):
    """{file} holds a {found!r} model; expected the llama architecture."""


class GGUFModel:
    """One GGUF file, memory-mapped."""

    def __init__(self, file: Path) -> None:
        from gguf import GGUFReader

        self._reader = GGUFReader(file)
        if (found := self.field("general.architecture")) != "llama":
            raise NotLlama(file=file, found=found)

    def field(self, key: str, default: Any = None) -> Any:
        """A metadata value as Python sees it."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    @property
    def tensor_count(self) -> int:
        return len(self._reader.tensors)

    def config(self, dtype: str) -> dict[str, Any]:
        """The contents of config.json for weights stored as ``dtype``."""
        heads = self.field("llama.attention.head_count")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(self.field("tokenizer.ggml.tokens")),
            "hidden_size": self.field("llama.embedding_length"),
            "intermediate_size": self.field("llama.feed_forward_length"),
            "num_hidden_layers": self.field("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.field("llama.attention.head_count_kv", heads),
            "head_dim": self.field("llama.rope.dimension_count"),
            "hidden_act": "silu",
            "max_position_embeddings": self.field("llama.context_length"),
            "rms_norm_eps": _shortest(self.field("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": self.field("llama.rope.freq_base", 10000.0),
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in self._reader.tensors),
            "torch_dtype": dtype,
            **self.special_ids(),
        }

    def special_ids(self) -> dict[str, int]:
        keys = {"bos": "bos", "eos": "eos", "pad": "padding"}
        return {f"{name}_token_id": self.field(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}

    def weights(self) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Every tensor dequantised, under its name in a safetensors checkpoint."""
        from gguf.quants import dequantize

        heads = self.field("llama.attention.head_count")
        rotated = {"attn_q": heads, "attn_k": self.field("llama.attention.head_count_kv", heads)}
        for tensor in self._reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type)
            if name := _NAMES.get(tensor.name):
                yield name, values
                continue
            _, layer, kind, leaf = tensor.name.split(".")
            if kind in rotated:
                values = _halves(values, rotated[kind])
            yield f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{leaf}", values


def _halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows in the order that rotates dimension i with i + size / 2; GGUF keeps rotated pairs side by side."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _shortest(value: float) -> float:
    """The decimal that was meant: GGUF stores 1e-05 as the nearest float32."""
    import numpy as np

    return float(str(np.float32(value)))
