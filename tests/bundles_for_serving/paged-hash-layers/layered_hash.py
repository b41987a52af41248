"""The layered paged-hash model as a pure function.

Every layer writes a cell for each token into its own pages and hashes what it reads back: all cells, or those
of its window. The next token is chosen by the sum of the layers' hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

__all__ = ["RESERVED", "VOCAB_SIZE", "cells", "chosen", "expected_tokens", "windows"]

VOCAB_SIZE = 512
RESERVED = 16
"""Tokens below are special; the model never emits them."""


def scatter(words: Words) -> Words:
    """A bijection of 64-bit words that scatters them (the finalizer of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def windows(layers: int, window: int) -> list[int | None]:
    """Each layer's window: every third layer sees all tokens, the others the last ``window``."""
    return [None if layer % 3 == 2 else window for layer in range(layers)]


def cells(layer: int, tokens: Ints, positions: Ints) -> Words:
    """What a layer's cell of each token holds; one that was never written is 0."""
    words = tokens.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + positions.astype(np.uint64)
    return scatter(words + np.uint64((layer + 1) * 0xD1B54A32D192ED03 % 2**64))


def chosen(total: Words, length: int) -> int:
    """The next token after ``length`` tokens whose layers' cells add up to ``total``."""
    mixed = int(scatter(total.reshape(1) + np.uint64(length))[0])
    return RESERVED + mixed % (VOCAB_SIZE - RESERVED)


def expected_tokens(prompt: Sequence[int], count: int, *, layers: int, window: int) -> list[int]:
    """The ``count`` tokens that follow ``prompt``."""
    tokens = np.array([*prompt, *[0] * count], np.int64)
    positions = np.arange(len(tokens))
    for length in range(len(prompt), len(tokens)):
        total = np.zeros(1, np.uint64)
        for layer, seen in enumerate(windows(layers, window)):
            first = 0 if seen is None else max(length - seen, 0)
            total = total + cells(layer, tokens[first:length], positions[first:length]).sum(dtype=np.uint64)
        tokens[length] = chosen(total, length)
    return tokens[len(prompt) :].tolist()
