"""The likeliest token of each row, read from the logits as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

__all__ = ["likeliest_tokens"]

_INF, _MINUS_INF = 0x7F80, 0xFF80 - 0x10000
"""The bits of bfloat16 as integers; with the same sign, those of NaN are larger."""


def likeliest_tokens(logits: torch.Tensor, rows: Sequence[int]) -> tuple[npt.NDArray[np.int32], list[int]]:
    """The first of the largest logits of each of ``rows``, and those rows whose largest one is not finite.

    logits: floating point [n, V] on the host, with any strides. As in torch's argmax, NaN is larger than all else.
    """
    index = np.asarray(rows)
    if logits.dtype == torch.float32:
        table = logits.numpy()
        tokens = _each(table, index, np.argmax)
        finite = np.isfinite(table[index, tokens])
    elif logits.dtype == torch.bfloat16:
        tokens, finite = _of_bits(logits, index)
    else:
        tokens, finite = _widened(logits, index)
    return tokens.astype(np.int32), index[~finite].tolist()


def _of_bits(logits: torch.Tensor, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Of bfloat16 rows. Positive floats are ordered as their bits are; negative ones lie below, in reverse."""
    bits = logits.view(torch.int16).numpy()
    tokens = _each(bits, rows, np.argmax)
    largest = bits[rows, tokens]
    finite = np.ones(len(rows), dtype=np.bool_)
    without_nan = _each(bits.view(np.uint16), rows, np.max) <= _MINUS_INF + 0x10000
    for at in np.flatnonzero(~((largest > 0) & (largest < _INF) & without_nan)):
        if largest[at] <= _MINUS_INF:  # no positive logit and no NaN
            tokens[at] = bits[rows[at]].argmin()
            finite[at] = bits[rows[at], tokens[at]] != _MINUS_INF
        else:
            tokens[at : at + 1], finite[at : at + 1] = _widened(logits, rows[at : at + 1])
    return tokens, finite


def _widened(logits: torch.Tensor, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Of rows of any kind, one after the other as float32."""
    line = torch.empty(logits.shape[1], dtype=torch.float32)
    values = line.numpy()
    tokens = np.empty(len(rows), dtype=np.int64)
    finite = np.empty(len(rows), dtype=np.bool_)
    for at, row in enumerate(rows.tolist()):
        line.copy_(logits[row])
        tokens[at] = values.argmax()
        finite[at] = np.isfinite(values[tokens[at]])
    return tokens, finite


def _each(table: npt.NDArray[Any], rows: npt.NDArray[np.int64], of: Callable[..., Any]) -> npt.NDArray[Any]:
    """``of`` each row; all at once where nothing has to be copied for that."""
    if len(rows) == len(table) and table.flags.c_contiguous:
        return of(table, axis=1)[rows]
    return np.array([of(table[row]) for row in rows.tolist()])
