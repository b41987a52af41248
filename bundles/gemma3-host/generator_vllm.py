"""Gemma 3 text models on the host: layers of sliding windows between layers of full attention.

`Gemma3` is the model, named as its checkpoints are; `Gemma3ForCausalLM` is what the server calls, a `HostAdapter`. vLLM
makes KV cache groups of the layers, so each layer asks the step for its own page table.
"""

from functools import partial

import torch
from torch import nn

from vllm_tt.errors import ConfigError
from vllm_tt.host.adapter import HostAdapter
from vllm_tt.host.attention import AttentionOptions, PagedAttention
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import OffsetRMSNorm
from vllm_tt.host.rotary import RotaryEmbedding

SLIDING = "sliding_attention"


class UnsupportedGemma(ConfigError):
    """The checkpoint's configuration has {name} = {found}, which this bundle does not compute."""


class Layer(nn.Module):
    def __init__(self, config, layer_type):
        super().__init__()
        norm = partial(OffsetRMSNorm, eps=config.rms_norm_eps)
        self.layer_type = layer_type
        self.self_attn = PagedAttention(
            config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            options=AttentionOptions(
                head_norm=norm,
                scale=config.query_pre_attn_scalar**-0.5,
                window=config.sliding_window if layer_type == SLIDING else None,
            ),
        )
        self.mlp = GatedMLP(
            config.hidden_size, config.intermediate_size, activation=config.hidden_activation, bias=False
        )
        self.input_layernorm = norm(config.hidden_size)
        self.post_attention_layernorm = norm(config.hidden_size)
        self.pre_feedforward_layernorm = norm(config.hidden_size)
        self.post_feedforward_layernorm = norm(config.hidden_size)

    def forward(self, hidden, rotation, step, cache):
        attended = self.self_attn(self.input_layernorm(hidden), rotation, step, cache)
        hidden = hidden + self.post_attention_layernorm(attended)
        return hidden + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(hidden)))


class Gemma3(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding_scale = config.hidden_size**0.5
        self.logits_cap = config.final_logit_softcapping
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Layer(config, layer_type) for layer_type in config.layer_types)
        self.model.norm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rotaries = {kind: RotaryEmbedding(Rope.from_config(config, kind)) for kind in set(config.layer_types)}

    def forward(self, step, kv_cache):
        """Logits of each row's last token, float32 [rows, vocabulary]."""
        hidden = self.model.embed_tokens(step.tokens)
        hidden = hidden * hidden.new_tensor(self.embedding_scale)  # rounded to the model's dtype, as in training
        rotations = {kind: rotary(step.positions, step.lengths, hidden.dtype) for kind, rotary in self.rotaries.items()}
        for i, (layer, cache) in enumerate(zip(self.model.layers, kv_cache, strict=True)):
            hidden = layer(hidden, rotations[layer.layer_type], step.of_layer(i), cache)
        logits = self.lm_head(self.model.norm(hidden[step.last]))
        if self.logits_cap is not None:
            logits = torch.tanh(logits / self.logits_cap) * self.logits_cap
        return logits.float()


class Gemma3ForCausalLM(HostAdapter):
    @classmethod
    def get_kv_cache_spec(cls, vllm_config):
        """Windows keep what they see; full attention keeps every token.

        With --disable-sliding-window there are no windows: vLLM has taken them out of the configuration.
        """
        from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

        config = vllm_config.model_config.hf_text_config
        cache = {
            "block_size": vllm_config.cache_config.block_size,
            "num_kv_heads": config.num_key_value_heads,
            "head_size": config.head_dim,
            "dtype": vllm_config.model_config.dtype,
        }
        full = FullAttentionSpec(**cache)
        window = config.sliding_window
        windowed = full if window is None else SlidingWindowSpec(**cache, sliding_window=window)
        return {
            f"model.layers.{i}.self_attn": windowed if layer_type == SLIDING else full
            for i, layer_type in enumerate(config.layer_types)
        }

    @classmethod
    def build_model(cls, hf_config):
        for name in ("use_bidirectional_attention", "attn_logit_softcapping"):
            if found := getattr(hf_config, name, None):
                raise UnsupportedGemma(name=name, found=found)
        return Gemma3(hf_config)
