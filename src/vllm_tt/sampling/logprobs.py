"""Logprobs as vLLM reports them, from what the device returns and from the host's sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.outputs import LogprobsLists

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["UNKNOWN_RANK", "chosen_logprobs", "device_logprobs", "likeliest_logprobs", "merge"]

UNKNOWN_RANK = 0
"""Ranks begin with 1; this is the rank of a token whose device returned its logprob alone."""


def chosen_logprobs(
    tokens: npt.NDArray[np.int32], logprobs: npt.NDArray[np.float32], likeliest: npt.NDArray[np.bool_]
) -> LogprobsLists:
    """From the chosen tokens' logprobs [n]; a row that is ``likeliest`` [n] chose the likeliest token.

    The likeliest token's logprob is then known as well, for a client that asks for one.
    """
    return LogprobsLists(
        np.stack([tokens, tokens], axis=1),
        np.stack([logprobs, logprobs], axis=1),
        np.where(likeliest, 1, UNKNOWN_RANK),
    )


def likeliest_logprobs(
    tokens: npt.NDArray[np.int32], logprobs: npt.NDArray[np.float32], indices: npt.NDArray[np.int32]
) -> LogprobsLists:
    """From the K likeliest tokens, ``indices`` [n, K], and their ``logprobs`` [n, K] in falling order."""
    hits = indices == tokens[:, None]
    # A chosen token that is not listed is as likely as the last one that is: only so could it be drawn instead.
    place = np.where(hits.any(axis=1), hits.argmax(axis=1), indices.shape[1] - 1)
    chosen = np.take_along_axis(logprobs, place[:, None], axis=1)
    return LogprobsLists(
        np.concatenate([tokens[:, None], indices], axis=1),
        np.concatenate([chosen, logprobs], axis=1),
        place + 1,
    )


def device_logprobs(
    tokens: npt.NDArray[np.int32],
    logprobs: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32] | None,
    likeliest: npt.NDArray[np.bool_],
) -> LogprobsLists:
    """From either form that a device returns; ``likeliest`` [n] as in `chosen_logprobs`."""
    if indices is None:
        return chosen_logprobs(tokens, logprobs, likeliest)
    return likeliest_logprobs(tokens, logprobs, indices)


def merge(rows: int, parts: Sequence[tuple[npt.NDArray[np.int64], LogprobsLists | None]]) -> LogprobsLists | None:
    """One set for ``rows`` rows; each part has the rows it is for. None where no part has logprobs.

    A row reads as many columns as it asked for: those that a narrower part lacks are never read.
    """
    found = [(index, part) for index, part in parts if part is not None]
    if not found:
        return None
    width = max(part.logprobs.shape[1] for _, part in found)
    tokens = np.zeros((rows, width), dtype=np.int32)
    logprobs = np.full((rows, width), -np.inf, dtype=np.float32)
    ranks = np.zeros(rows, dtype=np.int64)
    for index, part in found:
        columns = part.logprobs.shape[1]
        tokens[index, :columns] = part.logprob_token_ids
        logprobs[index, :columns] = part.logprobs
        ranks[index] = part.sampled_token_ranks
    return LogprobsLists(tokens, logprobs, ranks)
