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
    find = _finder(logits)
    tokens = np.empty(len(rows), dtype=np.int32)
    dead = []
    for at, row in enumerate(rows):
        tokens[at], finite = find(row)
        if not finite:
            dead.append(row)
    return tokens, dead


def _finder(logits: torch.Tensor) -> Callable[[int], tuple[int, bool]]:
    """What gives a row's likeliest token, and whether its logit is finite: numpy's argmax runs at memory speed."""
    if logits.dtype == torch.float32:
        table = logits.numpy()
        return lambda row: _of_floats(table[row])
    buffer = torch.empty(logits.shape[1], dtype=torch.float32)
    floats = buffer.numpy()

    def widened(row: int) -> tuple[int, bool]:
        buffer.copy_(logits[row])
        return _of_floats(floats)

    if logits.dtype != torch.bfloat16:
        return widened
    bits = logits.view(torch.int16).numpy()

    def by_bits(row: int) -> tuple[int, bool]:
        # Positive floats are ordered as their bits are. All negative ones lie below, in the opposite order.
        line = bits[row]
        token = int(line.argmax())
        largest = line[token]
        if 0 < largest < _INF and line.view(np.uint16).max() <= _MINUS_INF + 0x10000:
            return token, True
        if largest <= _MINUS_INF:
            token = int(line.argmin())
            return token, bool(line[token] != _MINUS_INF)
        return widened(row)

    return by_bits


def _of_floats(row: npt.NDArray[np.float32]) -> tuple[int, bool]:
    token: Any = row.argmax()
    return int(token), bool(-np.inf < row[token] < np.inf)
