"""Qwen2.5-VL models on the host: text and images, whose tokens have rotary positions of three coordinates.

`Qwen25VL` is the model, named as its checkpoints are; `Qwen2_5_VLForConditionalGeneration` is what the server calls, a
`HostAdapter` that is also sent images, and returns how far each row's rotary positions are from positions.
"""

from torch import nn

from vllm_tt.host.adapter import HostAdapter
from vllm_tt.host.attention import AttentionOptions, PagedAttention
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.image_prompts import ImagePrompts
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.mrope import ImageTokens, MultiRotaryEmbedding
from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.vision import VisionTower


class Layer(nn.Module):
    def __init__(self, config, layer_type):
        super().__init__()
        window = config.sliding_window if layer_type == "sliding_attention" else None
        self.self_attn = PagedAttention(
            config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.hidden_size // config.num_attention_heads,
            bias=True,
            options=AttentionOptions(output_bias=False, window=window),
        )
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, activation=config.hidden_act, bias=False)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden, rotation, step, cache):
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, step, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Qwen25VL(nn.Module):
    def __init__(self, config):
        super().__init__()
        text = config.text_config
        self.visual = VisionTower(config.vision_config)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(text.vocab_size, text.hidden_size)
        self.model.layers = nn.ModuleList(Layer(text, layer_type) for layer_type in text.layer_types)
        self.model.norm = RMSNorm(text.hidden_size, text.rms_norm_eps)
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)
        self.rotary = MultiRotaryEmbedding(Rope.from_config(text))

    def forward(self, step, kv_cache, positions, images=()):
        """Logits of each row's last token, float32 [rows, vocabulary]."""
        hidden = self.model.embed_tokens(step.tokens)
        for image in images:
            hidden[image.tokens] = self.visual(image.patches, image.grid)
        rotation = self.rotary(positions, hidden.dtype)
        for layer, cache in zip(self.model.layers, kv_cache, strict=True):
            hidden = layer(hidden, rotation, step, cache)
        return self.lm_head(self.model.norm(hidden[step.last])).float()


class Qwen2_5_VLForConditionalGeneration(HostAdapter):  # noqa: N801 - as in config.json
    # Other tools save the parts of the model within `model`.
    weight_prefixes = {"model.language_model.": "model.", "model.visual.": "visual."}

    @classmethod
    def build_model(cls, hf_config):
        return Qwen25VL(hf_config)

    def __init__(self, model, hf_config, mesh_device, slots, lanes):
        super().__init__(model, hf_config, mesh_device, slots, lanes)
        self.layout = ImageTokens(token=hf_config.image_token_id, merge=model.visual.merge)

    def prefill_forward(self, *, tokens, start_pos, prompt_lens, pixel_values=None, image_grid_thw=None, **inputs):
        prompts = ImagePrompts.build(self.layout, tokens, start_pos, prompt_lens, pixel_values, image_grid_thw)
        out = super().prefill_forward(
            tokens=tokens,
            start_pos=start_pos,
            prompt_lens=prompt_lens,
            model_inputs={"positions": prompts.positions, "images": prompts.images},
            **inputs,
        )
        return out, prompts.deltas

    def decode_inputs(self, step, held):
        return {"positions": (step.positions + held.rope_deltas[step.slots]).expand(3, -1)}
