"""Llama-architecture models on the host: the adapter contract, implemented with torch.

`Llama` is the model, named as its checkpoints are; `LlamaForCausalLM` is what the server calls, a `HostAdapter`:
that class implements the contract and plays the device.
"""

from torch import nn

from vllm_tt.host.adapter import HostAdapter
from vllm_tt.host.attention import PagedAttention
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.rotary import RotaryEmbedding


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        heads = config.num_attention_heads
        self.self_attn = PagedAttention(
            config.hidden_size,
            heads=heads,
            kv_heads=config.num_key_value_heads or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            bias=getattr(config, "attention_bias", False),
        )
        self.mlp = GatedMLP(
            config.hidden_size,
            config.intermediate_size,
            activation=config.hidden_act,
            bias=getattr(config, "mlp_bias", False),
        )
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden, rotation, step, cache):
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, step, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
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


class LlamaForCausalLM(HostAdapter):
    @classmethod
    def build_model(cls, hf_config):
        return Llama(hf_config)
