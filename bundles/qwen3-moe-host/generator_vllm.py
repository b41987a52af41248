"""Qwen3 mixture-of-experts models on the host: each token goes through a few of many feed-forward blocks.

`Qwen3Moe` is the model, named as its checkpoints are; `Qwen3MoeForCausalLM` is what the server calls, a `HostAdapter`.
"""

from functools import partial

from torch import nn

from vllm_tt.host.adapter import HostAdapter
from vllm_tt.host.attention import AttentionOptions, PagedAttention
from vllm_tt.host.experts import RoutedExperts
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.rotary import RotaryEmbedding


def feed_forward(config, layer):
    """Routed experts, or a dense block in the layers that the configuration names or skips."""
    if config.num_experts and layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0:
        return RoutedExperts(
            config.hidden_size,
            config.moe_intermediate_size,
            experts=config.num_experts,
            chosen=config.num_experts_per_tok,
            normalised=config.norm_topk_prob,
            activation=config.hidden_act,
        )
    return GatedMLP(config.hidden_size, config.intermediate_size, activation=config.hidden_act, bias=False)


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        norm = partial(RMSNorm, eps=config.rms_norm_eps)
        self.self_attn = PagedAttention(
            config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            options=AttentionOptions(head_norm=norm, window=config.sliding_window),
        )
        self.mlp = feed_forward(config, layer)
        self.input_layernorm = norm(config.hidden_size)
        self.post_attention_layernorm = norm(config.hidden_size)

    def forward(self, hidden, rotation, step, cache):
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, step, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Qwen3Moe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.num_hidden_layers))
        self.model.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rotary = RotaryEmbedding(Rope.from_config(config))

    def forward(self, step, kv_cache):
        """Logits of each row's last token, float32 [rows, vocabulary]."""
        hidden = self.model.embed_tokens(step.tokens)
        rotation = self.rotary(step.positions, step.lengths, hidden.dtype)
        for layer, cache in zip(self.model.layers, kv_cache, strict=True):
            hidden = layer(hidden, rotation, step, cache)
        return self.lm_head(self.model.norm(hidden[step.last])).float()


class Qwen3MoeForCausalLM(HostAdapter):
    @classmethod
    def build_model(cls, hf_config):
        return Qwen3Moe(hf_config)
