"""What the model carries by slot beside the pages, as recurrent layers do: a running hash of a row's tokens.

It says the same as the row's pages, as long as every slot computes each token of its request once and none else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from paged_hash import term

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

__all__ = ["States"]


class States:
    """One word a slot."""

    def __init__(self, slots: int) -> None:
        self._words: Words = np.zeros(slots, np.uint64)

    def prefill(self, slot: int, tokens: Ints, start: int) -> None:
        """Compute ``tokens`` at positions from ``start`` on; a row at position 0 begins anew."""
        if not start:
            self._words[slot] = 0
        added = term(tokens, np.arange(start, start + len(tokens))).sum(dtype=np.uint64)
        self._words[[slot]] += added

    def decode(self, slots: Ints, tokens: Ints, positions: Ints) -> None:
        """Compute one token in each of ``slots``, whoever reads what comes of it."""
        self._words[slots] += term(tokens, positions)

    def off(self, slots: Ints, fingerprints: Words) -> Words:
        """How far each slot is from the fingerprint of its row's tokens: 0 where it computed just these."""
        return self._words[slots] - fingerprints
