"""The device's sampler: parameters and token counts that stay until they are loaded again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from paged_hash import RESERVED, scatter
from paged_hash_checks import require
from paged_hash_parameters import Row, check_neutral

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import torch

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float32]

__all__ = ["DeviceSampler", "History", "draw", "logprobs", "wrong"]

History = tuple[list[int], list[int]]
"""Prompt and output."""


class DeviceSampler:
    """Sampling state by slot."""

    def __init__(self, slots: int) -> None:
        self._rows: list[Row] | None = None
        self._histories: list[History | None] = [None] * slots
        self.dormant = True
        """Whether steps ran without it since its state was reset; what it samples is wrong then."""

    def load(self, rows: list[Row], live: npt.NDArray[np.bool_]) -> None:
        """Take every slot's parameters."""
        check_neutral(row for row, there in zip(rows, live.tolist(), strict=True) if not there)
        self._rows = rows

    def keep(self, rows: list[Row], live: npt.NDArray[np.bool_]) -> list[Row]:
        """The parameters that stay; those that were sent, and are not loaded, must be the same.

        A row that the host has dropped may still run: its parameters are neutral.
        """
        require(self._rows is not None, "sampling parameters were never loaded")
        assert self._rows is not None
        for slot in np.flatnonzero(live).tolist():
            kept, sent = self._rows[slot], rows[slot]
            fine = sent == kept or sent.neutral
            require(fine, "slot {slot} has {sent}, not loaded over {kept}", slot=slot, sent=sent, kept=kept)
        return self._rows

    def reset(self, histories: list[History] | None) -> None:
        """Start random state and token counts anew, from what the host knows."""
        self.dormant = False
        self._histories = [*histories] if histories is not None else [None] * len(self._histories)

    def history(self, slot: int, right: list[int]) -> History:
        """What the penalties of ``slot`` count, which must be its row's tokens."""
        found = self._histories[slot]
        require(found is not None, "slot {slot} has penalties, and no tokens were sent for them", slot=slot)
        assert found is not None
        counted = found[0] + found[1]
        at = next((i for i, (a, b) in enumerate(zip(counted, right, strict=False)) if a != b), "the end")
        require(
            counted == right,
            "the penalties of slot {slot} count {got} tokens, its row has {want}; they differ at {at}",
            slot=slot,
            got=len(counted),
            want=len(right),
            at=at,
        )
        return found

    def sampled(self, slot: int, token: int) -> None:
        """Count a token."""
        if (found := self._histories[slot]) is not None:
            found[1].append(token)


def draw(logits: Floats, row: Row, position: int, history: History | None) -> int:
    """One row's token from its logits [V]; a seeded draw depends on nothing but these, the seed and the position."""
    if history is not None:
        logits = _penalised(logits, row, history)
    if row.greedy:
        return int(logits.argmax())
    order = np.argsort(-logits, kind="stable")[: row.top_k]
    scaled = logits[order].astype(np.float64) / row.temperature
    weights = np.exp(scaled - scaled[0])
    weights /= weights.sum()
    weights[weights.cumsum() - weights >= row.top_p] = 0
    reached = weights.cumsum()
    return int(order[np.searchsorted(reached, _noise(row.seed, position) * reached[-1], side="right")])


def logprobs(logits: torch.Tensor, chosen: torch.Tensor, rows: Sequence[Row], most: int | None) -> Any:
    """None where no row asks, the chosen tokens' [n, 1] where no row asks for more, else the ``most`` likeliest."""
    if not any(row.enable_log_probs for row in rows):
        return None
    values = logits.log_softmax(-1)
    if not any(row.num_logprobs for row in rows):
        return values.gather(1, chosen[:, None])
    likeliest, ids = values.sort(dim=-1, descending=True, stable=True)
    return likeliest[:, :most], ids[:, :most].int()


def wrong(token: int, vocab_size: int) -> int:
    """A token that the model would not choose, and might."""
    return RESERVED + (token - RESERVED + 1) % (vocab_size - RESERVED)


def _penalised(logits: Floats, row: Row, history: History) -> Floats:
    prompt, output = history
    logits = logits.copy()
    seen = np.unique(np.array(prompt + output))
    seen = seen[seen < len(logits)]
    found = logits[seen]
    logits[seen] = np.where(found > 0, found / row.repetition_penalty, found * row.repetition_penalty)
    counts = np.bincount(output, minlength=len(logits))
    return logits - row.frequency_penalty * counts - row.presence_penalty * (counts > 0)


def _noise(seed: int | None, position: int) -> float:
    """Uniform in [0, 1)."""
    if seed is None:
        return random.random()
    word = scatter(np.array([seed], np.uint64) << np.uint64(32) | np.uint64(position))
    return float(word[0] >> np.uint64(11)) / 2**53
