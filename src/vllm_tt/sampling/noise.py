"""The random numbers that vLLM's sampler draws for a seeded row."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Noise"]

_PROBE = 4096


class Noise:
    """What ``exponential_`` draws for a vocabulary, looked at for some of its tokens."""

    def __init__(self, vocab_size: int) -> None:
        self._uniform = torch.empty(vocab_size, dtype=torch.float64)
        self._by_logarithm = _is_by_logarithm()

    def of(self, generator: torch.Generator, tokens: Any = slice(None)) -> torch.Tensor:
        """The numbers of ``tokens``, float32; the generator advances by the whole vocabulary."""
        if self._by_logarithm:
            # The logarithms are most of the work.
            return _logarithm(self._uniform.uniform_(generator=generator)[tokens])
        return torch.empty(len(self._uniform)).exponential_(generator=generator)[tokens]


def _logarithm(uniform: torch.Tensor) -> torch.Tensor:
    return (-uniform).log1p_().neg_().float()


def _is_by_logarithm() -> bool:
    """Whether torch draws so, as it does where it does not use MKL's generators."""
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    uniform = torch.empty(_PROBE, dtype=torch.float64).uniform_(generator=one)
    same = torch.equal(_logarithm(uniform), torch.empty(_PROBE).exponential_(generator=other))
    return same and torch.equal(one.get_state(), other.get_state())
