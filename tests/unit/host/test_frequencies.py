from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from vllm_tt.host.frequencies import Rope, UnsupportedRope, inverse_frequencies

LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LONGROPE = {
    "factor": 4.0,
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0 + 0.01 * i for i in range(32)],
    "long_factor": [1.0 + 0.5 * i for i in range(32)],
}

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 2.5},
    {"rope_type": "llama3", **LLAMA3},
    {"rope_type": "llama3", **LLAMA3, "factor": 8.0, "original_max_position_embeddings": 1024},
    {"rope_type": "dynamic", "factor": 1.7},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048, "beta_fast": 16, "beta_slow": 2},
    {"rope_type": "yarn", "factor": 8.0, "truncate": False, "mscale": 1.2, "mscale_all_dim": 0.4},
    {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.3},
    {"rope_type": "yarn", "factor": 0.5, "mscale": 2.0},
    {"rope_type": "longrope", **LONGROPE},
    {"rope_type": "longrope", **LONGROPE, "attention_factor": 1.1},
]
SCALINGS += [scaling | {"partial_rotary_factor": 0.25} for scaling in SCALINGS if scaling["rope_type"] != "longrope"]


def config(scaling: dict[str, Any] | None, **settings: Any) -> LlamaConfig:
    defaults = {"hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0}
    return LlamaConfig(**{**defaults, **settings}, rope_scaling=dict(scaling) if scaling else None)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("length", [None, 100, 8192, 8193, 20000])
def test_frequencies_equal_transformers(scaling: dict[str, Any], length: int | None) -> None:
    settings = config(scaling)
    seq_len = None if length is None else torch.tensor(length)
    expected, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](settings, None, seq_len=seq_len)
    rope = Rope.from_config(settings)
    found, scale = inverse_frequencies(rope, torch.tensor([length]) if rope.varies and length is not None else None)
    torch.testing.assert_close(found.reshape(-1), expected, rtol=1e-6, atol=0)
    assert scale == pytest.approx(factor)


def test_each_row_has_its_own_length() -> None:
    rope = Rope.from_config(config({"rope_type": "dynamic", "factor": 2.0}))
    short, long = inverse_frequencies(rope, torch.tensor([10, 30000]))[0]
    assert torch.equal(short, inverse_frequencies(rope)[0])
    assert (long[1:] < short[1:]).all()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"rope_theta": 700.0, "rope_scaling": None}, ("default", 700.0)),
        ({"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, ("linear", 700.0)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 900.0}}, ("default", 900.0)),
        ({}, ("default", 10000.0)),
    ],
)
def test_older_and_newer_configurations_are_read(attributes: dict[str, Any], expected: tuple[str, float]) -> None:
    class Config:
        hidden_size, num_attention_heads, head_dim, max_position_embeddings = 512, 8, None, 2048

    settings = Config()
    for name, value in attributes.items():
        setattr(settings, name, value)
    rope = Rope.from_config(settings)
    assert (rope.kind, rope.theta) == expected
    assert rope.dim == 64


@pytest.mark.parametrize(
    "attributes",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}},
        {"rope_scaling": None, "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    ],
    ids=["newer", "older"],
)
def test_part_of_a_head_may_be_rotated(attributes: dict[str, Any]) -> None:
    settings = SimpleNamespace(hidden_size=512, num_attention_heads=8, max_position_embeddings=2048, **attributes)
    rope = Rope.from_config(settings)
    assert rope.dim == 16
    torch.testing.assert_close(inverse_frequencies(rope)[0], 1e4 ** -(torch.arange(0, 16, 2) / 16))


def test_each_type_of_layer_may_have_its_own() -> None:
    settings = Gemma3TextConfig(
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    )
    full, local = (Rope.from_config(settings, layer_type) for layer_type in ("full_attention", "sliding_attention"))
    assert (full.kind, full.theta, full.values["factor"]) == ("linear", 1e6, 8.0)
    assert (local.kind, local.theta) == ("default", 1e4)


def test_other_kinds_are_refused() -> None:
    message = (
        "The checkpoint's rotary embedding declares rope_type 'proportional'; the host blocks support "
        "default, linear, dynamic, llama3, yarn, longrope."
    )
    with pytest.raises(UnsupportedRope, match=f"^{re.escape(message)}$"):
        Rope.from_config(SimpleNamespace(rope_parameters={"rope_type": "proportional", "rope_theta": 1e4}))
