"""Penalties on the tokens that a row has seen, instead of tables over the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vllm_tt.batch.requests import NO_SLOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from vllm.sampling_params import SamplingParams

    from vllm_tt.batch.requests import RequestState

__all__ = ["PenalisedRow", "PenalisedRows", "is_penalised"]


def is_penalised(params: SamplingParams) -> bool:
    return (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) != (0.0, 0.0, 1.0)


class PenalisedRow:
    """The tokens of one request's prompt and output, and how often the output has each."""

    def __init__(self, state: RequestState, vocab_size: int) -> None:
        params = state.sampling_params
        prompt = np.unique(np.asarray(state.prompt_token_ids, dtype=np.int64))
        # Placeholders beyond the vocabulary have no logit.
        self._tokens = prompt[(prompt >= 0) & (prompt < vocab_size)]
        self._counts = np.zeros(len(self._tokens), dtype=np.float32)
        self._place = {token: place for place, token in enumerate(self._tokens.tolist())}
        self._output = state.output_token_ids
        self._seen = 0
        self._presence = np.float32(params.presence_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._repetition = np.float32(params.repetition_penalty)
        self.epoch = state.epoch

    def penalise(self, logits: npt.NDArray[np.float32]) -> None:
        """Change the row's ``logits`` [V] in place, in the order and with the roundings of vLLM's sampler."""
        self._catch_up()
        one = np.float32(1.0)
        found = logits[self._tokens]
        found *= np.where(found > 0, one / self._repetition, self._repetition)
        found -= self._frequency * self._counts
        found -= self._presence * (self._counts > 0)
        logits[self._tokens] = found

    def _catch_up(self) -> None:
        """Count what the output has more than at the last look."""
        new = []
        for token in self._output[self._seen :]:
            if (place := self._place.setdefault(token, len(self._place))) < len(self._tokens):
                self._counts[place] += 1
            else:
                new.append((place, token))
        if new:
            first = len(self._tokens)
            self._tokens = np.append(self._tokens, np.zeros(len(self._place) - first, dtype=np.int64))
            self._counts = np.append(self._counts, np.zeros(len(self._place) - first, dtype=np.float32))
            for place, token in new:
                self._tokens[place] = token
                self._counts[place] += 1
        self._seen = len(self._output)


class PenalisedRows:
    """What has been counted, kept while a request holds its slot."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._rows: dict[RequestState, PenalisedRow] = {}

    def of(self, states: Sequence[RequestState]) -> dict[int, PenalisedRow]:
        """The penalised rows of a step, by their place in ``states``."""
        wanted = {place: state for place, state in enumerate(states) if is_penalised(state.sampling_params)}
        present = set(wanted.values())
        self._rows = {
            state: row
            for state, row in self._rows.items()
            if row.epoch == state.epoch and (state in present or state.slot != NO_SLOT)
        }
        for state in present.difference(self._rows):
            self._rows[state] = PenalisedRow(state, self._vocab_size)
        return {place: self._rows[state] for place, state in wanted.items()}
