"""Top-k, top-p and the draw, in place of the part of vLLM's sampler that sorts the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

from vllm_tt.sampling.candidates import Candidates, likeliest
from vllm_tt.sampling.noise import Noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

__all__ = ["Draw"]

_SIZES = (64, 256, 2048)
"""How many candidates are looked at before the whole vocabulary is."""
_FIRST_FOR_TOP_P = 256
"""Of those, the first that is tried without a top-k."""
_BLOCK = 64
"""Tokens whose probabilities are added up before the draw falls on one of them."""


class Draw(torch.nn.Module):
    """Draws from the same distributions as vLLM's sampler and, with a generator, the same tokens.

    What is equal is so up to the rounding of a row's sum of exponentials.
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self._noise = Noise(vocab_size)
        self._probs = torch.empty(vocab_size)

    def forward(
        self,
        logits: torch.Tensor,
        generators: Mapping[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None]:
        """Tokens int64 [n] for contiguous float32 ``logits`` [n, V], which may be overwritten."""
        rows, vocab = logits.shape
        table = logits.numpy()
        top_k = np.full(rows, vocab, dtype=np.int32) if k is None else k.numpy()
        top_p = np.ones(rows, dtype=np.float32) if p is None else p.numpy()
        tokens = np.full(rows, -1, dtype=np.int64)
        for size in _SIZES:
            narrow = (top_k <= size) | ((top_k == vocab) & (top_p < 1.0) & (size >= _FIRST_FOR_TOP_P))
            left = np.flatnonzero(narrow & (tokens < 0))
            if left.size:
                part = table if left.size == rows else table[left]
                found = likeliest(part, size)
                probs, decided = self._distribution(part, found, top_k[left], top_p[left])
                ready = left[decided]
                tokens[ready] = self._pick(probs[decided], found.tokens[decided], ready, generators)
        for row in np.flatnonzero(tokens < 0).tolist():
            masked = _masked(logits[row : row + 1], int(top_k[row]), float(top_p[row]))
            tokens[row] = self._pick_of_all(masked, generators.get(row))
        return torch.from_numpy(tokens), None

    def _distribution(
        self,
        logits: npt.NDArray[np.float32],
        found: Candidates,
        top_k: npt.NDArray[np.int32],
        top_p: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """The probabilities of the candidates, and for which rows no other token has any."""
        rows, width = found.logits.shape
        row = np.arange(rows)
        floor = np.where(top_k <= width, found.logits[row, np.maximum(width - top_k, 0)], -np.inf)
        kept = np.where(found.logits < floor[:, None], np.float32(-np.inf), found.logits)
        bounded = found.complete | (top_k <= found.counts)
        if (top_p < 1.0).any():
            probs = torch.from_numpy(kept).softmax(1).numpy()
            below = np.zeros(rows)
            for open_row in np.flatnonzero(~bounded & found.usable).tolist():
                of_all = torch.softmax(torch.from_numpy(logits[open_row]), 0, out=self._probs).numpy()
                first = width - found.counts[open_row]
                probs[open_row, :first] = 0.0
                probs[open_row, first:] = of_all[found.tokens[open_row, first:]]
                below[open_row] = 1.0 - probs[open_row].sum(dtype=np.float64)
            mass = (below[:, None] + probs.cumsum(axis=1, dtype=np.float64)).astype(np.float32)
            cut = mass <= (1.0 - top_p)[:, None]
            cut[:, -1] = False
            kept[cut] = -np.inf
            # Where the least likely candidate is cut, so is every token that is no candidate.
            bounded |= cut[row, np.minimum(width - found.counts, width - 1)]
        return torch.from_numpy(kept).softmax(1).numpy(), bounded & found.usable

    def _pick(
        self,
        probs: npt.NDArray[np.float32],
        tokens: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        generators: Mapping[int, torch.Generator],
    ) -> npt.NDArray[np.int64]:
        """A token of each of ``rows``, of its candidates ``tokens`` [n, m] by their ``probs`` [n, m]."""
        mass = probs.cumsum(axis=1, dtype=np.float64)
        at = (mass < _heights(len(rows))[:, None] * mass[:, -1:]).sum(axis=1)
        for i, row in enumerate(rows.tolist()):
            if (generator := generators.get(row)) is not None:
                at[i] = torch.from_numpy(probs[i]).div(self._noise.of(generator, tokens[i])).argmax()
        return tokens[np.arange(len(rows)), at]

    def _pick_of_all(self, logits: torch.Tensor, generator: torch.Generator | None) -> int:
        """A token of one row, by its ``logits`` [V]."""
        probs = torch.softmax(logits, 0, out=self._probs)
        if generator is not None:
            return int(probs.div_(self._noise.of(generator)).numpy().argmax())
        if not np.isfinite(probs.numpy()[0]):
            return int(probs.numpy().argmax())  # there is no distribution
        return _at_height(probs.numpy(), float(_heights(1)[0]))


def _masked(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """The one row of ``logits`` [1, V], as vLLM limits it."""
    k = torch.tensor([top_k]) if top_k < logits.shape[1] else None
    p = torch.tensor([top_p]) if top_p < 1.0 else None
    return logits[0] if k is None and p is None else apply_top_k_top_p_pytorch(logits, k, p, allow_cpu_sync=True)[0]


def _at_height(probs: npt.NDArray[np.float32], height: float) -> int:
    """The token in whose share of the mass ``height`` falls; blocks first, as sums take less time than running ones."""
    body = len(probs) - len(probs) % _BLOCK
    sums = torch.from_numpy(probs[:body]).view(-1, _BLOCK).sum(1).numpy()
    mass = np.append(sums, probs[body:].sum()).cumsum(dtype=np.float64)
    goal = height * mass[-1]
    block = int(mass.searchsorted(goal))
    start = mass[block - 1] if block else 0.0
    within = probs[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    share = min(1.0, (goal - start) / (mass[block] - start))
    return block * _BLOCK + int(within.searchsorted(share * within[-1]))


def _heights(rows: int) -> npt.NDArray[np.float64]:
    """Where in the mass of each row the draw falls: above 0, so that it never falls on what has none, and up to 1."""
    return 1.0 - torch.rand(rows, dtype=torch.float64).numpy()
