"""Grouped-query attention over a paged KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from vllm_tt.host.rotary import rotate

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from vllm_tt.host.kv_cache import PagedKV
    from vllm_tt.host.step import Step

__all__ = ["AttentionOptions", "PagedAttention"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionOptions:
    """What some architectures do otherwise than Llama; the defaults are Llama's."""

    head_norm: Callable[[int], nn.Module] | None = None
    """Makes ``q_norm`` and ``k_norm``, for heads of the size it is given, before rotation."""
    scale: float | None = None
    """Of the scores; one over the root of the head size if not given."""
    window: int | None = None
    """How many tokens each may see, itself among them; all that came before it if not given."""
    gated: bool = False
    """``q_proj`` gives, for each head, a query and a gate; the sigmoid of the gate scales what was attended."""
    output_bias: bool | None = None
    """Of ``o_proj``; that of the others if not given."""


class PagedAttention(nn.Module):
    """Projections, rotation, cache update and attention, with the parameter names of Llama checkpoints."""

    def __init__(
        self,
        hidden_size: int,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        bias: bool,
        options: AttentionOptions = AttentionOptions(),
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.scale, self.window, self.gated = options.scale, options.window, options.gated
        self.q_proj = nn.Linear(hidden_size, heads * head_dim * (2 if options.gated else 1), bias=bias)
        self.k_proj = nn.Linear(hidden_size, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden_size, kv_heads * head_dim, bias=bias)
        output_bias = bias if options.output_bias is None else options.output_bias
        self.o_proj = nn.Linear(heads * head_dim, hidden_size, bias=output_bias)
        norm = options.head_norm or nn.Identity
        self.q_norm, self.k_norm = norm(head_dim), norm(head_dim)

    def forward(
        self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], step: Step, cache: PagedKV
    ) -> torch.Tensor:
        """From and to hidden states [t, hidden size]."""
        queries = self.q_proj(hidden).view(len(hidden), self.heads, -1)
        queries, gate = queries.chunk(2, dim=-1) if self.gated else (queries, None)
        keys, values = (project(hidden).view(len(hidden), -1, self.head_dim) for project in (self.k_proj, self.v_proj))
        queries, keys = rotate(self.q_norm(queries), rotation), rotate(self.k_norm(keys), rotation)
        cache.write(step.cells, keys, values)
        attended = step.attend(queries, cache, scale=self.scale, window=self.window)
        if gate is not None:
            attended = attended * gate.sigmoid()
        return self.o_proj(attended.reshape(len(hidden), -1))
