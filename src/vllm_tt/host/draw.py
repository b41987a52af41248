"""One row's draw from its scores: a function of these, the parameters, the seed and the token's position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from vllm_tt.host.row_params import RowParams

__all__ = ["draw", "kept"]


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
    if top_p < 1.0:
        rising = scores[tokens].argsort()
        mass = scores[tokens][rising].softmax(-1).cumsum(-1)
        inside = mass > 1 - torch.tensor(top_p)
        inside[-1] = True  # the likeliest stays, however small top-p is
        tokens = tokens[rising[inside]]
    return tokens


def _noise(seed: int | None, position: int, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Exponential noise, float64, one value for each of ``tokens``."""
    if seed is None:
        return torch.empty(len(tokens), dtype=torch.float64).exponential_()
    # A counter-based generator: its key is the seed, each position has its own stretch of the counter.
    generator = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
    return torch.from_numpy(generator.standard_exponential(vocab_size))[tokens]
