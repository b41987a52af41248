"""The gated delta net against transformers' module, whole and in parts, and its rule against a loop over tokens."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

from vllm_tt.host.delta_net import GatedDeltaNet, gated_delta_rule
from vllm_tt.host.slot_state import Run

HIDDEN, SLOTS = 24, 5


def pair() -> tuple[GatedDeltaNet, Qwen3_5GatedDeltaNet]:
    """Both with the same random weights."""
    config = Qwen3_5TextConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=6,
        layer_types=["linear_attention"],
    )
    theirs = Qwen3_5GatedDeltaNet(config, 0)
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if name == "norm.weight" else 0.0, std=0.5)
    ours = GatedDeltaNet(HIDDEN, keys=(2, 8), values=(4, 6), kernel=4, eps=1e-6)
    ours.load_state_dict(theirs.state_dict())
    ours.allocate(SLOTS)
    return ours, theirs


def run_of(slots: list[int], length: int, begins: bool) -> Run:
    tokens = torch.arange(len(slots) * length).view(len(slots), length)
    return Run(tokens=tokens, slots=torch.tensor(slots), begins=torch.full((len(slots),), begins))


def advance(ours: GatedDeltaNet, hidden: torch.Tensor, slots: list[int], begins: bool) -> torch.Tensor:
    """Of ``hidden`` [n, m, hidden size], in ``slots``."""
    return ours(hidden.flatten(0, 1), [run_of(slots, hidden.shape[1], begins)]).view(hidden.shape)


@pytest.mark.parametrize(
    "cuts",
    [[150], [64, 64, 22], [1, 2, 63, 84], [70, *[1] * 80], [1] * 20],
    ids=["at once", "chunks", "odd chunks", "then decodes", "decodes"],
)
@torch.no_grad()
def test_any_parts_equal_transformers(cuts: list[int]) -> None:
    torch.manual_seed(1)
    ours, theirs = pair()
    hidden, slots, start = torch.randn(2, sum(cuts), HIDDEN), [3, 1], 0
    found = []
    for cut in cuts:
        found.append(advance(ours, hidden[:, start : start + cut], slots, begins=not start))
        start += cut
    torch.testing.assert_close(torch.cat(found, 1), theirs(hidden), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_slots_do_not_touch_each_other_and_begin_anew() -> None:
    torch.manual_seed(2)
    ours, theirs = pair()
    first, second, third = torch.randn(3, 1, 30, HIDDEN)
    advance(ours, first[:, :20], [2], begins=True)
    advance(ours, second, [0], begins=True)
    found = [advance(ours, first[:, 20:], [2], begins=False), advance(ours, third, [2], begins=True)]
    torch.testing.assert_close(found[0], theirs(first)[:, 20:], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[1], theirs(third), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_several_runs_of_a_step_each_have_their_tokens() -> None:
    torch.manual_seed(3)
    ours, theirs = pair()
    one, two = torch.randn(1, 7, HIDDEN), torch.randn(1, 4, HIDDEN)
    long = Run(tokens=torch.arange(7)[None], slots=torch.tensor([4]), begins=torch.tensor([True]))
    short = Run(tokens=torch.arange(7, 11)[None], slots=torch.tensor([0]), begins=torch.tensor([True]))
    found = ours(torch.cat((one[0], two[0])), [short, long])
    expected = torch.cat((theirs(one)[0], theirs(two)[0]))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_the_state_of_half_precision_weights() -> None:
    torch.manual_seed(4)
    ours, theirs = pair()
    hidden = torch.randn(1, 40, HIDDEN, dtype=torch.bfloat16)
    ours.to(torch.bfloat16).allocate(SLOTS)
    found = [advance(ours, hidden[:, :30], [1], begins=True), advance(ours, hidden[:, 30:], [1], begins=False)]
    expected = theirs.to(torch.bfloat16)(hidden)
    assert found[0].dtype == torch.bfloat16
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("length", [1, 5, 64, 65, 200])
def test_the_rule_token_by_token(length: int) -> None:
    torch.manual_seed(length)
    heads = (2, 3, length)
    queries, keys = torch.randn(2, *heads, 4).double()
    keys = keys / keys.norm(dim=-1, keepdim=True)
    values, memory = torch.randn(*heads, 5).double(), torch.randn(2, 3, 4, 5).double()
    decay, strength = -torch.rand(heads).double() * 3, torch.rand(heads).double()
    found, after = gated_delta_rule(queries, keys, values, (decay, strength), memory)
    for at in range(length):
        memory = memory * decay[:, :, at, None, None].exp()
        key = keys[:, :, at, :, None]
        missing = values[:, :, at, None] - (key * memory).sum(-2, keepdim=True)
        memory = memory + key * missing * strength[:, :, at, None, None]
        expected = (queries[:, :, at, :, None] / 2 * memory).sum(-2)
        torch.testing.assert_close(found[:, :, at], expected)
    torch.testing.assert_close(after, memory)
