"""The small blocks against the formulas they stand for: rotary, norm, mlp."""

from __future__ import annotations

import re

import pytest
import torch

from vllm_tt.host.frequencies import Rope
from vllm_tt.host.mlp import GatedMLP, UnsupportedActivation
from vllm_tt.host.norm import OffsetRMSNorm, RMSNorm
from vllm_tt.host.rotary import RotaryEmbedding, rotate


def rope(kind: str = "default", **values: float) -> Rope:
    return Rope(kind=kind, dim=8, theta=100.0, max_positions=16, values=values)


def test_rotation_turns_pairs_by_position_times_frequency() -> None:
    torch.manual_seed(0)
    positions = torch.tensor([0, 3, 11])
    heads = torch.randn(3, 2, 8)
    found = rotate(heads, RotaryEmbedding(rope())(positions, positions + 1, torch.float32))
    frequencies = 100.0 ** (-torch.arange(4) / 4)
    turns = torch.polar(torch.ones(3, 1, 4), positions[:, None, None] * frequencies)
    expected = torch.complex(heads[..., :4], heads[..., 4:]) * turns
    torch.testing.assert_close(found, torch.cat((expected.real, expected.imag), -1))
    assert torch.equal(found[0], heads[0]), "position 0 is not turned"


def test_dimensions_past_the_rotated_ones_stay() -> None:
    positions = torch.tensor([2, 5])
    heads, rotation = torch.randn(2, 3, 20), RotaryEmbedding(rope())(positions, positions + 1, torch.float32)
    found = rotate(heads, rotation)
    assert torch.equal(found[..., :8], rotate(heads[..., :8], rotation))
    assert torch.equal(found[..., 8:], heads[..., 8:])


def test_the_attention_factor_scales_and_the_dtype_is_the_models() -> None:
    positions = torch.tensor([0])
    cos, sin = RotaryEmbedding(rope("yarn", factor=4.0, attention_factor=1.5))(positions, positions + 1, torch.bfloat16)
    assert cos.dtype == sin.dtype == torch.bfloat16
    assert cos.unique().tolist() == [1.5]
    assert sin.unique().tolist() == [0.0]


def test_lengths_matter_where_frequencies_vary() -> None:
    embed = RotaryEmbedding(rope("dynamic", factor=2.0))
    positions = torch.tensor([5, 5])
    cos, _ = embed(positions, torch.tensor([6, 60]), torch.float32)
    assert not torch.equal(cos[0], cos[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_scales_to_unit_mean_square(dtype: torch.dtype) -> None:
    norm = RMSNorm(64, 1e-5).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 64))
    hidden = (torch.randn(5, 64) * 30).to(dtype)
    out = norm(hidden)
    assert out.dtype == dtype
    expected = torch.nn.functional.rms_norm(hidden.double(), (64,), norm.weight.double(), 1e-5)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_of_weights_around_one_scales_in_float32(dtype: torch.dtype) -> None:
    norm = OffsetRMSNorm(64, 1e-5).to(dtype)
    hidden = (torch.randn(5, 64) * 30).to(dtype)
    plain = torch.nn.functional.rms_norm(hidden.float(), (64,), eps=1e-5)
    torch.testing.assert_close(norm(hidden), plain.to(dtype), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-0.5, 2, 64))
    expected = (plain * (1 + norm.weight.float())).to(dtype)
    torch.testing.assert_close(norm(hidden), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_the_gated_block(bias: bool) -> None:
    block = GatedMLP(4, 6, activation="silu", bias=bias)
    hidden = torch.randn(3, 4)
    inner = torch.nn.functional.silu(block.gate_proj(hidden)) * block.up_proj(hidden)
    torch.testing.assert_close(block(hidden), block.down_proj(inner))
    assert {name.rpartition(".")[2] for name, _ in block.named_parameters()} == {"weight", *(["bias"] if bias else [])}


def test_another_activation_is_refused() -> None:
    message = (
        "The checkpoint's activation is 'relu6'; the host blocks support "
        "silu, swish, gelu, gelu_new, gelu_pytorch_tanh, relu."
    )
    with pytest.raises(UnsupportedActivation, match=f"^{re.escape(message)}$"):
        GatedMLP(4, 6, activation="relu6", bias=False)
