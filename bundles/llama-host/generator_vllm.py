"""Llama-architecture models on the host: the adapter contract, implemented with torch.

`Llama` is the model, named as its checkpoints are; `LlamaForCausalLM` is what the server calls. `HostDevice` plays the
device: it runs what it is given in order, in a thread of its own, samples, and goes on from the tokens it sampled.
"""

from functools import partial

import torch
from torch import nn

from vllm_tt.host.attention import PagedAttention
from vllm_tt.host.checkpoint import checkpoint_folder
from vllm_tt.host.device import HostDevice
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.kv_cache import PagedKV
from vllm_tt.host.mlp import GatedMLP
from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.rotary import RotaryEmbedding
from vllm_tt.host.step import DecodeStep, PrefillStep
from vllm_tt.host.weights import load_weights

MAX_LOGPROBS = 20
"""The likeliest tokens that are returned with their logprobs; clients of the OpenAI API may ask for so many."""


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

    def forward(self, step, rotary, kv_cache):
        """Logits of each row's last token, float32 [rows, vocabulary]."""
        hidden = self.model.embed_tokens(step.tokens)
        rotation = rotary(step.positions, step.lengths, hidden.dtype)
        for layer, cache in zip(self.model.layers, kv_cache, strict=True):
            hidden = layer(hidden, rotation, step, cache)
        return self.lm_head(self.model.norm(hidden[step.last])).float()


class LlamaForCausalLM:
    model_capabilities = {
        "supports_prefix_caching": True,
        "supports_chunked_prefill": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_lanes": True,
        "supports_device_seeds": True,
        "supports_row_logits": True,
        "max_device_logprobs": MAX_LOGPROBS,
    }
    decode_input_update_contract = 1

    @classmethod
    def get_max_tokens_all_users(cls, *, max_model_len, max_num_seqs, **_):
        """The host's memory is the limit; tt-metal's usual 131,072 tokens are plenty for it."""
        return min(max_model_len * max_num_seqs, max(131_072, max_model_len))

    @classmethod
    def initialize_vllm_model(
        cls, hf_config, mesh_device, max_batch_size, *, max_seq_len, tt_data_parallel=1, optimizations=None
    ):
        with torch.device("meta"):
            model = Llama(hf_config)
        tied = {"lm_head.weight": "model.embed_tokens.weight"} if hf_config.tie_word_embeddings else {}
        load_weights(model, checkpoint_folder(hf_config), tied)
        return cls(model, hf_config, mesh_device, max_batch_size, tt_data_parallel)

    def __init__(self, model, hf_config, mesh_device, max_batch_size, lanes):
        self.model = model
        self.rotary = RotaryEmbedding(Rope.from_config(hf_config))
        self.kv_heads = hf_config.num_key_value_heads or hf_config.num_attention_heads
        self.device = HostDevice(mesh_device, vocab_size=hf_config.vocab_size, max_logprobs=MAX_LOGPROBS)
        self.lanes, self.rows_per_lane = lanes, max_batch_size // lanes

    def allocate_kv_cache(self, shape, dtype, num_layers):
        """Pages for every lane. ``shape`` counts the KV heads of one chip; the host holds them all."""
        pages, _, page_size, head_size = shape
        if dtype.itemsize >= 2:
            self.model.to(dtype)  # the server's --dtype, which is first known here
        dtype = self.model.lm_head.weight.dtype
        return [
            PagedKV.allocate(pages * self.lanes, self.kv_heads, page_size, head_size, dtype) for _ in range(num_layers)
        ]

    def warmup_model_prefill(self, *, enable_trace, kv_cache, can_sample_on_device):
        """One prompt of a page, written to the null page."""
        length = torch.tensor([kv_cache[0].page_size])
        self.prefill_forward(
            tokens=torch.zeros((1, int(length)), dtype=torch.int32),
            page_table=torch.zeros((1, 1), dtype=torch.int32),
            kv_cache=kv_cache,
            prompt_lens=length.numpy(),
            start_pos=(length * 0).numpy(),
            empty_slots=[0],
        )

    def warmup_model_decode(self, *, enable_trace, kv_cache, can_sample_on_device, max_batch_size, num_blocks):
        """Every slot at position 0, all written to the null page."""
        self.decode_forward(
            tokens=torch.zeros((max_batch_size, 1), dtype=torch.int32),
            page_table=torch.zeros((max_batch_size, num_blocks), dtype=torch.int32),
            kv_cache=kv_cache,
            start_pos=torch.zeros(max_batch_size, dtype=torch.int32),
        )

    def prefill_forward(
        self, *, tokens, page_table, kv_cache, prompt_lens, start_pos, empty_slots, enable_trace=False, **sampling
    ):
        """Logits [n, 1, V], or what ``sampling`` (sampling_params, logits_rows) asks for."""
        table = self.pages_of_lanes(page_table, torch.tensor(empty_slots), kv_cache)
        step = PrefillStep.build(tokens, table, start_pos, prompt_lens, kv_cache[0].page_size)
        compute = partial(self.model, step, self.rotary, kv_cache)
        return self.device.prefill(compute, tokens=tokens, prompt_lens=prompt_lens, **sampling)

    def decode_forward(self, *, kv_cache, enable_trace=False, read_from_device=True, **inputs):
        """Logits [B, 1, V], or what ``inputs`` (sampling_params, logits_rows, ...) ask for; or a handle, at once."""
        out = self.device.decode(partial(self.decode_step, kv_cache), **inputs)
        return out.result() if read_from_device else out

    def decode_step(self, kv_cache, tokens, positions, page_table):
        """In the device's thread, with what the device holds: logits [t, V] of the slots that are not idle."""
        table = self.pages_of_lanes(page_table, torch.arange(len(tokens)), kv_cache)
        step = DecodeStep.build(tokens, table, positions, kv_cache[0].page_size)
        return self.model(step, self.rotary, kv_cache)

    def read_decode_output(self, out, async_read=True):
        return self.device.read(out, async_read)

    def process_decode_output_host(self, out, is_tokens):
        """Waits for the step; what went wrong in it is raised here."""
        return out.result()

    def pages_of_lanes(self, page_table, slots, kv_cache):
        """Page ids count from zero in every lane; in the host's cache the lanes follow one another."""
        pages_per_lane = len(kv_cache[0].keys) // self.lanes
        return page_table + (slots // self.rows_per_lane * pages_per_lane)[:, None]
