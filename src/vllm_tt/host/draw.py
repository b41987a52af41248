"""One row's draw from its scores: a function of these, the parameters, the seed and the token's position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from vllm_tt.host.row_params import RowParams

__all__ = ["draw", "kept"]

_HEAD = 256
"""So many of the likeliest tokens are looked at first for top-p."""


def draw(scores: torch.Tensor, params: RowParams, position: int) -> int:
    """A token drawn from ``scores`` [V], penalties applied, for ``position`` of its sequence."""
    scores = scores / params.temperature
    tokens = kept(scores, params.top_k, params.top_p)
    # Of exponential noises, each over its token's probability, the least is the token's with that probability.
    # In double precision: a noise that single precision rounds to zero would make any token win.
    chances = scores[tokens].softmax(-1, dtype=torch.float64)
    return int(tokens[(chances / _noise(params.seed, position, tokens, len(scores))).argmax()])


def kept(scores: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """The tokens of ``scores`` [V] that top-k and then top-p leave; ties with the last of top-k stay."""
    tokens = torch.arange(len(scores))
    if top_k < len(scores):
        tokens = (scores >= scores.topk(top_k).values[-1]).nonzero().flatten()
    return tokens[_nucleus(scores[tokens], top_p)] if top_p < 1.0 else tokens


def _nucleus(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """The likeliest places of ``scores`` that hold ``top_p`` of the probability, or the likeliest alone."""
    chances = scores.softmax(-1, dtype=torch.float64)
    size = _HEAD
    while True:
        head = chances.topk(min(size, len(chances)))
        mass = head.values.cumsum(0)
        if mass[-1] >= top_p or size >= len(chances):
            inside = mass - head.values < top_p
            inside[0] = True
            return head.indices[inside]
        size *= 8  # rarely needed: the likeliest few hold most of the probability


def _noise(seed: int | None, position: int, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Exponential noise, float64, one value for each of ``tokens``."""
    if seed is None:
        return torch.empty(len(tokens), dtype=torch.float64).exponential_()
    # A counter-based generator: its key is the seed, each position has its own stretch of the counter.
    generator = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
    return torch.from_numpy(generator.standard_exponential(vocab_size))[tokens]
