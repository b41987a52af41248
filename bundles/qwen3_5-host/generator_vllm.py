"""Qwen 3.5 text models on the host: layers of a gated delta net between layers of gated attention.

`Qwen35` is the model, named as its checkpoints are; `Qwen35ForCausalLM` is what the server calls, a `HostAdapter`.
The KV cache has an item for each layer of attention; the delta nets carry their state by slot.
"""

from functools import partial

from torch import nn

from vllm_tt.host.adapter import HostAdapter
from vllm_tt.host.attention import AttentionOptions, PagedAttention
from vllm_tt.host.delta_net import GatedDeltaNet
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import OffsetRMSNorm
from vllm_tt.host.rotary import RotaryEmbedding
from vllm_tt.host.slot_state import runs

FULL = "full_attention"


class Layer(nn.Module):
    def __init__(self, config, layer_type):
        super().__init__()
        norm = partial(OffsetRMSNorm, eps=config.rms_norm_eps)
        if layer_type == FULL:
            self.self_attn = PagedAttention(
                config.hidden_size,
                heads=config.num_attention_heads,
                kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                bias=config.attention_bias,
                options=AttentionOptions(head_norm=norm, gated=True),
            )
        else:
            self.linear_attn = GatedDeltaNet(
                config.hidden_size,
                keys=(config.linear_num_key_heads, config.linear_key_head_dim),
                values=(config.linear_num_value_heads, config.linear_value_head_dim),
                kernel=config.linear_conv_kernel_dim,
                eps=config.rms_norm_eps,
            )
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, activation=config.hidden_act, bias=False)
        self.input_layernorm = norm(config.hidden_size)
        self.post_attention_layernorm = norm(config.hidden_size)

    def forward(self, hidden, mix):
        hidden = hidden + mix(self.input_layernorm(hidden))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Qwen35(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Layer(config, layer_type) for layer_type in config.layer_types)
        self.model.norm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rotary = RotaryEmbedding(Rope.from_config(config))

    def allocate_state(self, slots):
        for layer in self.model.layers:
            if hasattr(layer, "linear_attn"):
                layer.linear_attn.allocate(slots)

    def forward(self, step, kv_cache):
        """Logits of each row's last token, float32 [rows, vocabulary]."""
        hidden = self.model.embed_tokens(step.tokens)
        rotation = self.rotary(step.positions, step.lengths, hidden.dtype)
        rows, caches = runs(step), iter(kv_cache)
        for layer in self.model.layers:
            if hasattr(layer, "linear_attn"):
                mix = partial(layer.linear_attn, runs=rows)
            else:
                mix = partial(layer.self_attn, rotation=rotation, step=step, cache=next(caches))
            hidden = layer(hidden, mix)
        return self.lm_head(self.model.norm(hidden[step.last])).float()


class Qwen35ForCausalLM(HostAdapter):
    # What host adapters take but prefix caching: the state at the end of a page is not kept.
    model_capabilities = {
        "supports_chunked_prefill": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_lanes": True,
        "supports_device_seeds": True,
        "supports_row_logits": True,
        "max_device_logprobs": 20,
    }

    @classmethod
    def get_kv_cache_spec(cls, vllm_config):
        """The layers of attention alone: the delta nets' state is by slot, not in pages."""
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        config = vllm_config.model_config.hf_text_config
        spec = FullAttentionSpec(
            block_size=vllm_config.cache_config.block_size,
            num_kv_heads=config.num_key_value_heads,
            head_size=config.head_dim,
            dtype=vllm_config.model_config.dtype,
        )
        layers = enumerate(config.layer_types)
        return {f"model.layers.{i}.self_attn": spec for i, layer_type in layers if layer_type == FULL}

    @classmethod
    def build_model(cls, hf_config):
        return Qwen35(hf_config)

    def allocate_kv_cache_per_layer(self, specs):
        kv_cache = super().allocate_kv_cache_per_layer(specs)
        self.model.allocate_state(self.lanes * self.rows_per_lane)
        return kv_cache
