"""Samples the rows of a call as a device does, after vLLM's sampler: penalties, then the likeliest token or a draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.host.draw import draw
from vllm_tt.host.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.host.row_params import RowParams

__all__ = ["Computed", "HostDeviceSampler", "Sampled"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Computed:
    """The rows that a call computed: every row of a prefill, the decoding slots of a decode."""

    rows: list[int]
    """Their places among the call's rows."""
    logits: torch.Tensor
    """float32 [rows, V]."""
    positions: list[int]
    """Where each row's next token will stand in its sequence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sampled:
    """What was sampled for the n rows of a call."""

    tokens: torch.Tensor
    """int32 [n]; 0 for a row that was not computed."""
    logprobs: tuple[torch.Tensor, torch.Tensor] | None
    """Of the K likeliest tokens, and these, [n, K] each; zeros for a row that did not ask."""
    logits: torch.Tensor | None
    """Of the rows that the host samples, [r, V]."""

    def returned(self) -> Any:
        """In the forms of the contract."""
        if self.logits is not None:
            return self.tokens, self.logprobs, self.logits
        return self.tokens if self.logprobs is None else (self.tokens, self.logprobs)


class HostDeviceSampler:
    """The parameters and penalty counts of a call's rows; they stay until they are loaded or reset."""

    def __init__(self, vocab_size: int, max_logprobs: int) -> None:
        """``max_logprobs``: how many of the likeliest tokens are returned where a row wants logprobs."""
        self._vocab_size = vocab_size
        self._max_logprobs = min(max_logprobs, vocab_size)
        self._rows: Sequence[RowParams] = ()
        self._history: History | None = None

    def load(self, rows: Sequence[RowParams]) -> None:
        """New parameters; what penalties count stays."""
        self._rows = rows
        self._special = {row: params for row, params in enumerate(rows) if params.is_random or params.is_penalised}

    def reset(self, prompt_tokens: torch.Tensor | None = None, output_tokens: torch.Tensor | None = None) -> None:
        """Count anew, for the rows as they are loaded: `History` says from what."""
        counted = any(params.is_penalised for params in self._special.values())
        self._history = History(len(self._rows), self._vocab_size, prompt_tokens, output_tokens) if counted else None

    def sample(self, computed: Computed, logits_rows: Sequence[int] | None = None) -> Sampled:
        """A token for each computed row; ``logits_rows`` are the host's, whose tokens are not counted."""
        place = {row: i for i, row in enumerate(computed.rows)}
        chosen = computed.logits.argmax(-1)
        for row, i in place.items():
            if row in self._special:
                chosen[i] = self._choose(row, computed.logits[i], computed.positions[i])
        tokens = torch.zeros(len(self._rows), dtype=torch.int32)
        tokens[computed.rows] = chosen.int()
        if self._history is not None:
            own = [row for row in computed.rows if row not in (logits_rows or ())]
            self._history.add(own, tokens[own])
        return Sampled(
            tokens=tokens,
            logprobs=self._logprobs(computed),
            logits=computed.logits[[place[row] for row in logits_rows]] if logits_rows else None,
        )

    def _choose(self, row: int, logits: torch.Tensor, position: int) -> int:
        params = self._special[row]
        scores = logits
        if self._history is not None and params.is_penalised:
            scores = self._history.penalised(logits, row, params)
        return draw(scores, params, position) if params.is_random else int(scores.argmax())

    def _logprobs(self, computed: Computed) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Of the logits as they are, before penalties and temperature."""
        if not any(params.wants_logprobs for params in self._rows):
            return None
        asked = [i for i, row in enumerate(computed.rows) if self._rows[row].wants_logprobs]
        likeliest = computed.logits[asked].log_softmax(-1).topk(self._max_logprobs)
        rows = [computed.rows[i] for i in asked]
        logprobs = torch.zeros(len(self._rows), self._max_logprobs)
        indices = torch.zeros(len(self._rows), self._max_logprobs, dtype=torch.int32)
        logprobs[rows], indices[rows] = likeliest.values, likeliest.indices.int()
        return logprobs, indices
