"""A feed-forward block of many experts, of which each token goes through a few."""

from __future__ import annotations

import torch
from torch import nn

from vllm_tt.host.mlp import GatedMLP

__all__ = ["RoutedExperts"]


class RoutedExperts(nn.Module):
    """The likeliest ``chosen`` of ``experts`` for each token, weighted by how likely the router finds them.

    Parameters are named as in Qwen MoE checkpoints. Each token adds up its experts in the order of their numbers,
    whatever tokens are beside it.
    """

    def __init__(
        self, hidden_size: int, inner_size: int, *, experts: int, chosen: int, normalised: bool, activation: str
    ) -> None:
        """``normalised``: the weights of the chosen experts add up to one."""
        super().__init__()
        self.chosen, self.normalised = chosen, normalised
        self.gate = nn.Linear(hidden_size, experts, bias=False)
        self.experts = nn.ModuleList(
            GatedMLP(hidden_size, inner_size, activation=activation, bias=False) for _ in range(experts)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """From and to hidden states [t, hidden size]."""
        likely = self.gate(hidden).softmax(-1, dtype=torch.float32)
        weights, experts = likely.topk(self.chosen, dim=-1)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(hidden.dtype)
        out = torch.zeros_like(hidden)
        for expert in experts.unique().tolist():
            rows, places = (experts == expert).nonzero(as_tuple=True)
            out.index_add_(0, rows, self.experts[expert](hidden[rows]) * weights[rows, places, None])
        return out
