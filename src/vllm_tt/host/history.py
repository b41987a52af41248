"""The tokens that penalties count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from vllm_tt.host.row_params import RowParams

__all__ = ["History"]


class History:
    """How often each token is in each row's prompt and output."""

    def __init__(
        self,
        rows: int,
        vocab_size: int,
        prompt_tokens: torch.Tensor | None = None,
        output_tokens: torch.Tensor | None = None,
    ) -> None:
        """``prompt_tokens`` and ``output_tokens``: int [rows, longest], padded with -1; None where there are none."""
        self._prompt = _counts(rows, vocab_size, prompt_tokens)
        self._output = _counts(rows, vocab_size, output_tokens)

    def add(self, rows: list[int], tokens: torch.Tensor) -> None:
        """One output token more, of ``tokens`` [r], for each of ``rows``, which differ."""
        self._output[rows, tokens.long()] += 1

    def penalised(self, logits: torch.Tensor, row: int, params: RowParams) -> torch.Tensor:
        """The scores [V] that ``logits`` [V] of a row become."""
        in_prompt, in_output = self._prompt[row, :-1], self._output[row, :-1]
        repetition = torch.tensor(params.repetition_penalty)
        repeated = torch.where(logits > 0, 1 / repetition, repetition)
        scores = logits * torch.where((in_prompt > 0) | (in_output > 0), repeated, 1.0)
        scores -= params.frequency_penalty * in_output
        scores -= params.presence_penalty * (in_output > 0)
        return scores


def _counts(rows: int, vocab_size: int, tokens: torch.Tensor | None) -> torch.Tensor:
    """Occurrences, int32 [rows, V + 1]; what is no token is counted in the last column."""
    # numpy's zeros take no memory until they are written; torch's do.
    counts = torch.from_numpy(np.zeros((rows, vocab_size + 1), dtype=np.int32))
    if tokens is not None:
        ids = torch.where((tokens >= 0) & (tokens < vocab_size), tokens, vocab_size).long()
        counts.scatter_add_(1, ids, torch.ones_like(ids, dtype=torch.int32))
    return counts
