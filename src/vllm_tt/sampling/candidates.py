"""The likeliest tokens of rows of logits, without sorting the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["Candidates", "likeliest"]

_BLOCKS_PER_CANDIDATE, _FEWEST_BLOCKS = 4, 512
"""More blocks let fewer tokens beyond the wanted ones through, and take longer to look at; so do very few."""
_MOST_PER_CANDIDATE = 8
"""A row that lets more through has its logits tied: it is left to those who look at whole rows."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidates:
    """For each of n rows, every token whose logit reaches some value of that row.

    Columns are in the order of logits, then of tokens, both rising. Rows with fewer than m candidates are padded in
    front, with token 0 and a logit of -inf.
    """

    logits: npt.NDArray[np.float32]
    """[n, m]"""
    tokens: npt.NDArray[np.int64]
    """[n, m]"""
    counts: npt.NDArray[np.int64]
    """[n], how many the row has."""
    complete: npt.NDArray[np.bool_]
    """[n], whether all of the row's other tokens are impossible: their logits are -inf."""
    usable: npt.NDArray[np.bool_]
    """[n], false where candidates would mean nothing (no logit is the largest finite number) or are too many."""


def likeliest(logits: npt.NDArray[np.float32], size: int) -> Candidates:
    """At least the ``size`` likeliest tokens of each row of ``logits`` [n, V], or all that are possible."""
    vocab = logits.shape[1]
    blocks = max(_FEWEST_BLOCKS, _BLOCKS_PER_CANDIDATE * size)
    maxima = _block_maxima(logits, depth=max(1, vocab // blocks))
    usable = np.isfinite(maxima.max(axis=1))
    if (above := maxima.shape[1] - size) > 0:
        # The maxima of ``size`` blocks reach this value, and so do as many tokens.
        floor = np.partition(maxima, above, axis=1)[:, above]
    else:
        floor = np.full(len(logits), -np.inf, dtype=np.float32)
    complete = np.isneginf(floor)
    found = []
    for row, (least, all_) in enumerate(zip(floor, complete, strict=True)):
        reached = np.flatnonzero(logits[row] > least if all_ else logits[row] >= least)
        usable[row] &= len(reached) <= _MOST_PER_CANDIDATE * size
        found.append(reached if usable[row] else reached[:0])
    counts = np.array([len(tokens) for tokens in found], dtype=np.int64)
    ordered, tokens = _in_order(logits, found, max(1, int(counts.max())))
    return Candidates(logits=ordered, tokens=tokens, counts=counts, complete=complete, usable=usable)


def _block_maxima(logits: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.float32]:
    """The largest of every ``depth`` logits, which are a number of blocks apart; the rest joins the first block."""
    blocks = logits.shape[1] // depth
    maxima = np.stack([row[: depth * blocks].reshape(depth, blocks).max(axis=0) for row in logits])
    if depth * blocks < logits.shape[1]:
        np.maximum(maxima[:, 0], logits[:, depth * blocks :].max(axis=1), out=maxima[:, 0])
    return maxima


def _in_order(
    logits: npt.NDArray[np.float32], found: Sequence[npt.NDArray[np.int64]], width: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    values = np.full((len(found), width), -np.inf, dtype=np.float32)
    tokens = np.zeros((len(found), width), dtype=np.int64)
    for row, ids in enumerate(found):
        values[row, width - len(ids) :] = logits[row, ids]
        tokens[row, width - len(ids) :] = ids
    # One integer of each logit and its column: sorting those is quicker, and stable.
    bits = (values + np.float32(0.0)).view(np.int32).astype(np.int64)
    keys = ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) << 32) | np.arange(width)
    keys.sort(axis=1)
    order = keys & 0xFFFFFFFF
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(tokens, order, axis=1)
