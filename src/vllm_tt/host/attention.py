"""Grouped-query attention over a paged KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from vllm_tt.host.rotary import rotate

if TYPE_CHECKING:
    import torch

    from vllm_tt.host.kv_cache import PagedKV
    from vllm_tt.host.step import Step

__all__ = ["PagedAttention"]


class PagedAttention(nn.Module):
    """Projections, rotation, cache update and attention, with the parameter names of Llama checkpoints."""

    def __init__(self, hidden_size: int, *, heads: int, kv_heads: int, head_dim: int, bias: bool) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(hidden_size, heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden_size, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden_size, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * head_dim, hidden_size, bias=bias)

    def forward(
        self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], step: Step, cache: PagedKV
    ) -> torch.Tensor:
        """From and to hidden states [t, hidden size]."""
        queries, keys, values = (
            project(hidden).view(len(hidden), -1, self.head_dim) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        cache.write(step.cells, rotate(keys, rotation), values)
        attended = step.attend(rotate(queries, rotation), cache)
        return self.o_proj(attended.reshape(len(hidden), -1))
