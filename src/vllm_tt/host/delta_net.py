"""Gated delta net: attention whose keys and values are condensed into one matrix a head, of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import silu, softplus

from vllm_tt.host.norm import RMSNorm
from vllm_tt.host.slot_state import SlotState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.host.slot_state import Run

__all__ = ["GatedDeltaNet", "gated_delta_rule"]

_CHUNK = 64
"""So many tokens are computed at once: the cost of a token grows with it, the number of steps falls."""
_EPS = 1e-6
"""Keeps a query or key of zeros from being divided by its length."""


class GatedDeltaNet(nn.Module):
    """Projections, causal convolution, the gated delta rule and a gated norm, with the parameter names of Qwen 3.5.

    Its state is by slot: the convolution's last inputs, and the matrix of each value head in float32.
    """

    def __init__(
        self, hidden_size: int, *, keys: tuple[int, int], values: tuple[int, int], kernel: int, eps: float
    ) -> None:
        """``keys``, ``values``: the number of heads and their size; value heads share the queries and keys."""
        super().__init__()
        (key_heads, key_size), (value_heads, value_size) = keys, values
        self._parts = (key_heads * key_size, key_heads * key_size, value_heads * value_size)
        self._sizes, self._heads = (key_size, value_size), value_heads
        self._shared = value_heads // key_heads
        channels, inner = sum(self._parts), self._parts[-1]
        self.in_proj_qkv = nn.Linear(hidden_size, channels, bias=False)
        self.in_proj_z = nn.Linear(hidden_size, inner, bias=False)
        self.in_proj_b = nn.Linear(hidden_size, value_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden_size, value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, kernel, groups=channels, bias=False)
        self.A_log = nn.Parameter(torch.zeros(value_heads))
        self.dt_bias = nn.Parameter(torch.ones(value_heads))
        self.norm = RMSNorm(value_size, eps)
        self.out_proj = nn.Linear(inner, hidden_size, bias=False)

    def allocate(self, slots: int) -> None:
        """Make room for the state of so many slots, in the dtype that the weights have by now."""
        channels, _, kernel = self.conv1d.weight.shape
        self._inputs = SlotState(slots, (channels, kernel - 1), self.conv1d.weight.dtype)
        self._memory = SlotState(slots, (self._heads, *self._sizes), torch.float32)

    def forward(self, hidden: torch.Tensor, runs: Sequence[Run]) -> torch.Tensor:
        """From and to hidden states [t, hidden size]; every row goes on from its slot's state and leaves it behind."""
        mixed = self.in_proj_qkv(hidden)
        strength = self.in_proj_b(hidden).sigmoid()
        decay = -self.A_log.float().exp() * softplus(self.in_proj_a(hidden).float() + self.dt_bias)
        out = hidden.new_empty((len(hidden), self._heads, self._sizes[1]))
        for run in runs:
            queries, keys, values = self._convolve(mixed, run)
            gates = tuple(gate[run.tokens].float().transpose(1, 2) for gate in (decay, strength))
            attended, memory = gated_delta_rule(queries, keys, values, gates, self._memory.read(run))
            self._memory.write(run, memory)
            out[run.tokens] = attended.transpose(1, 2).to(out.dtype)
        gate = silu(self.in_proj_z(hidden).view(out.shape).float())
        return self.out_proj((self.norm(out) * gate).to(hidden.dtype).flatten(1))

    def _convolve(self, mixed: torch.Tensor, run: Run) -> tuple[torch.Tensor, ...]:
        """Queries and keys [n, value heads, m, key size], of length one, and values; float32."""
        inputs = torch.cat((self._inputs.read(run), mixed[run.tokens].transpose(1, 2)), dim=-1)
        self._inputs.write(run, inputs[..., run.tokens.shape[1] :])
        parts = silu(self.conv1d(inputs)).transpose(1, 2).float().split(self._parts, dim=-1)
        queries, keys, values = (
            part.unflatten(-1, (-1, size)).transpose(1, 2)
            for part, size in zip(parts, (self._sizes[0], *self._sizes), strict=True)
        )
        return *(_unit(part).repeat_interleave(self._shared, dim=1) for part in (queries, keys)), values


def gated_delta_rule(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    gates: tuple[torch.Tensor, torch.Tensor],
    memory: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token by token the memory decays, what it holds for the key is moved to the value, and the query reads it.

    queries, keys: float32 [n, heads, m, key size]; values: [n, heads, m, value size]; gates, [n, heads, m] each: the
    decay, as the logarithm of a factor, and how far the value is approached; memory: [n, heads, key size, value size].
    Returns what was read, as values are, and the memory after the last token.
    """
    queries = queries * queries.shape[-1] ** -0.5
    read = []
    parts = (x.split(_CHUNK, dim=2) for x in (queries, keys, values, *gates))
    for *chunk, decay, strength in zip(*parts, strict=True):
        out, memory = _chunk(tuple(chunk), decay, strength, memory)
        read.append(out)
    return torch.cat(read, dim=2), memory


def _chunk(
    tokens: tuple[torch.Tensor, ...], decay: torch.Tensor, strength: torch.Tensor, memory: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rule for a few tokens at once, by matrix products.

    A token's change of the memory is its key times a vector. Each of these vectors depends on the earlier ones
    through the products of the keys: a triangular system, with ones on its diagonal.
    """
    queries, keys, values = tokens
    since = decay.cumsum(-1)[..., None]
    """How far the memory at the chunk's start has decayed at each token."""
    between = (since - since.mT).tril().exp().tril()
    start, end = since.exp(), since[..., -1:, :]
    system = strength[..., None] * (keys @ keys.mT) * between
    known = strength[..., None] * (values - start * (keys @ memory))
    changes = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    read = start * (queries @ memory) + (queries @ keys.mT * between) @ changes
    return read, end.exp() * memory + ((end - since).exp() * keys).mT @ changes


def _unit(heads: torch.Tensor) -> torch.Tensor:
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + _EPS)
