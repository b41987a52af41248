"""The attention block with the options of some architectures, against transformers' modules."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5Attention, Qwen3_5TextRotaryEmbedding

from vllm_tt.host.attention import AttentionOptions, PagedAttention
from vllm_tt.host.frequencies import Rope
from vllm_tt.host.kv_cache import PagedKV
from vllm_tt.host.norm import OffsetRMSNorm
from vllm_tt.host.rotary import RotaryEmbedding
from vllm_tt.host.step import PrefillStep

HIDDEN, LENGTH, PAGE = 24, 11, 4


@torch.no_grad()
def test_a_gate_norms_and_a_part_of_the_head_rotated() -> None:
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        hidden_size=HIDDEN, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16
    )
    theirs = Qwen3_5Attention(config, 0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    options = AttentionOptions(head_norm=partial(OffsetRMSNorm, eps=1e-6), gated=True)
    ours = PagedAttention(HIDDEN, heads=4, kv_heads=2, head_dim=16, bias=False, options=options)
    ours.load_state_dict(theirs.state_dict())
    hidden = torch.randn(LENGTH, HIDDEN)
    positions = torch.arange(LENGTH)
    step = PrefillStep.build(
        torch.zeros((1, LENGTH)).int(),
        torch.tensor([[2, 1, 3]]).int(),
        np.array([0]),
        np.array([LENGTH]),
        PAGE,
        torch.tensor([0]),
    )
    rotation = RotaryEmbedding(Rope.from_config(config))(positions, step.lengths, torch.float32)
    found = ours(hidden, rotation, step, PagedKV.allocate(4, 2, PAGE, 16, torch.float32))
    their_rotation = Qwen3_5TextRotaryEmbedding(config)(hidden[None], positions[None])
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)[None, None]
    expected, _ = theirs(hidden[None], their_rotation, mask)
    torch.testing.assert_close(found, expected[0], rtol=1e-4, atol=1e-5)


def test_the_output_projection_may_be_the_only_one_without_a_bias() -> None:
    options = AttentionOptions(output_bias=False)
    block = PagedAttention(HIDDEN, heads=4, kv_heads=2, head_dim=16, bias=True, options=options)
    biases = [name for name, _ in block.named_parameters() if name.endswith("bias")]
    assert biases == ["q_proj.bias", "k_proj.bias", "v_proj.bias"]
