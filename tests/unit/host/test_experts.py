"""Routed experts against transformers' block."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from vllm_tt.host.experts import RoutedExperts

HIDDEN, INNER, EXPERTS = 16, 12, 5


def blocks(chosen: int, normalised: bool) -> tuple[RoutedExperts, Qwen3MoeSparseMoeBlock]:
    """Ours and theirs, with the same random weights."""
    torch.manual_seed(3)
    config = Qwen3MoeConfig(
        hidden_size=HIDDEN,
        moe_intermediate_size=INNER,
        num_experts=EXPERTS,
        num_experts_per_tok=chosen,
        norm_topk_prob=normalised,
    )
    theirs = Qwen3MoeSparseMoeBlock(config)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ours = RoutedExperts(
        HIDDEN, INNER, experts=EXPERTS, chosen=chosen, normalised=normalised, activation=config.hidden_act
    )
    state = {"gate.weight": theirs.gate.weight}
    for i, expert in enumerate(theirs.experts.gate_up_proj):
        gate, up = expert.chunk(2)
        state |= {f"experts.{i}.gate_proj.weight": gate, f"experts.{i}.up_proj.weight": up}
        state[f"experts.{i}.down_proj.weight"] = theirs.experts.down_proj[i]
    ours.load_state_dict(state)
    return ours, theirs


@torch.no_grad()
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("chosen", [1, 2, EXPERTS])
@pytest.mark.parametrize("tokens", [1, 40])
def test_each_token_gets_what_its_experts_give(tokens: int, chosen: int, normalised: bool) -> None:
    ours, theirs = blocks(chosen, normalised)
    hidden = torch.randn(tokens, HIDDEN)
    torch.testing.assert_close(ours(hidden), theirs(hidden[None])[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_router_computes_in_float32() -> None:
    ours, theirs = blocks(2, True)
    hidden = torch.randn(9, HIDDEN).bfloat16()
    torch.testing.assert_close(ours.bfloat16()(hidden), theirs.bfloat16()(hidden[None])[0], rtol=2e-2, atol=2e-2)
