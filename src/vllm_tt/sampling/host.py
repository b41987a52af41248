"""Host sampling: plain rows by a look at their logits, all others by vLLM's own sampler and processors."""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.v1.sample.sampler import Sampler

from vllm_tt.batch.requests import NO_SLOT
from vllm_tt.errors import TTError
from vllm_tt.log import get_logger
from vllm_tt.sampling.argmax import likeliest_tokens
from vllm_tt.sampling.grammar import apply_grammar
from vllm_tt.sampling.loaded import LoadedProcessors
from vllm_tt.sampling.logprobs import merge
from vllm_tt.sampling.metadata import RowsMetadata, build_metadata, forget_impossible, padded_prompts
from vllm_tt.sampling.penalties import PenalisedRows
from vllm_tt.sampling.plain import is_plain, min_tokens
from vllm_tt.sampling.vllm_sampler import QuickSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.outputs import LogprobsLists

    from vllm_tt.batch.requests import RequestState

__all__ = ["HostSampler", "NarrowLogits", "SampledRows"]

log = get_logger(__name__)


class NarrowLogits(TTError):
    """The adapter's logits have {found} columns, the vocabulary of {model} has {vocab} tokens. Columns past the
    vocabulary are padding and may be there; none of the vocabulary may be missing.
    """


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampledRows:
    """One token for each row, in the order the rows were given."""

    tokens: npt.NDArray[np.int32]
    logprobs: LogprobsLists | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Batch:
    """The rows of a step, and how each is sampled; the same until the rows change or one of them does."""

    states: list[RequestState]
    epochs: list[int]
    plain: list[int]
    """Rows that take the likeliest token as it is."""
    plain_ids: frozenset[str]
    special: list[int]
    """All other rows, in the order of the processors' rows."""
    metadata: RowsMetadata | None
    """Of the special rows."""
    drawn: list[RequestState]
    """Rows with random numbers of their own."""
    waiting: list[tuple[RequestState, int]]
    """Rows that are special until they have so many tokens."""

    def still_holds(self, states: Sequence[RequestState], masked: Iterable[str]) -> bool:
        return (
            len(self.states) == len(states)
            and all(map(is_, self.states, states))
            and self.epochs == [state.epoch for state in states]
            and self.plain_ids.isdisjoint(masked)
            and not any(len(state.output_token_ids) >= least for state, least in self.waiting)
        )


class HostSampler:
    """Samples any request that vLLM can describe; a row's token does not depend on the other rows."""

    def __init__(self, vllm_config: VllmConfig, *, compat: bool = False) -> None:
        """``compat``: every row goes through vLLM's sampler as it is, without our quicker ways."""
        model_config = vllm_config.model_config
        self._compat = compat
        self._model: str = model_config.model
        self._vocab_size: int = model_config.get_vocab_size()
        self._processors = LoadedProcessors(vllm_config)
        self._penalised = PenalisedRows(self._vocab_size)
        self._sampler = Sampler(logprobs_mode=model_config.logprobs_mode) if compat else QuickSampler(model_config)
        self._batch: _Batch | None = None
        self._scratch = torch.empty(0, self._vocab_size)
        self._reported: set[RequestState] = set()

    def sample(
        self, logits: torch.Tensor, states: Sequence[RequestState], grammar: GrammarOutput | None
    ) -> SampledRows:
        """Sample one token for each of ``states`` from ``logits`` [len(states), V], which are left as they are."""
        if logits.shape[1] < self._vocab_size:
            raise NarrowLogits(model=self._model, vocab=self._vocab_size, found=logits.shape[1])
        logits = logits[:, : self._vocab_size]
        batch = self._batch_of(states, () if grammar is None else grammar.structured_output_request_ids)
        tokens = np.empty(len(states), dtype=np.int32)
        logprobs = None
        if batch.plain:
            tokens[batch.plain], dead = likeliest_tokens(logits, batch.plain)
            self._report(dead, states)
        if batch.metadata is not None:
            tokens[batch.special], logprobs = self._sample_special(logits, batch, grammar)
        return SampledRows(tokens=tokens, logprobs=logprobs)

    def _sample_special(
        self, logits: torch.Tensor, batch: _Batch, grammar: GrammarOutput | None
    ) -> tuple[npt.NDArray[np.int32], LogprobsLists | None]:
        """The tokens of the special rows, and logprobs for all rows where one of these asks."""
        chosen = self._copied(logits, batch.special)
        if grammar is not None:
            apply_grammar(chosen, [batch.states[row].req_id for row in batch.special], grammar)
        for state in batch.drawn:
            state.before_draw()
        out = self._sampler(chosen, batch.metadata)
        # The sampler works in place: what it leaves is what it sampled from.
        finite = torch.isfinite(chosen.amax(dim=1)).tolist()
        self._report([row for row, good in zip(batch.special, finite, strict=True) if not good], batch.states)
        found = out.logprobs_tensors.tolists() if out.logprobs_tensors is not None else None
        return out.sampled_token_ids.view(-1).numpy(), merge(len(batch.states), [(np.array(batch.special), found)])

    def _batch_of(self, states: Sequence[RequestState], masked: Sequence[str]) -> _Batch:
        if self._batch is None or not self._batch.still_holds(states, masked):
            self._batch = self._arrange(list(states), set(masked))
        elif self._batch.special:
            self._processors.go_on()
        return self._batch

    def _arrange(self, states: list[RequestState], masked: set[str]) -> _Batch:
        plain, special, waiting = [], [], []
        for row, state in enumerate(states):
            params = state.sampling_params
            if self._compat or self._processors.custom or state.req_id in masked or not is_plain(params):
                special.append(row)
            elif (least := min_tokens(params)) > len(state.output_token_ids):
                special.append(row)
                waiting.append((state, least))
            else:
                plain.append(row)
        metadata = None
        if special:
            row_of = {states[row]: row for row in special}
            ordered, metadata = self._describe(list(row_of))
            special = [row_of[state] for state in ordered]
        return _Batch(
            states=states,
            epochs=[state.epoch for state in states],
            plain=plain,
            plain_ids=frozenset(states[row].req_id for row in plain),
            special=special,
            metadata=metadata,
            drawn=[states[row] for row in special if states[row].generator is not None],
            waiting=waiting,
        )

    def _describe(self, states: list[RequestState]) -> tuple[list[RequestState], RowsMetadata]:
        """The order of these rows and their metadata; the processors are told of them."""
        for state in states:
            forget_impossible(state.sampling_params, self._vocab_size)
        ordered = self._processors.begin(states)
        penalised = self._penalised.of(ordered)
        greedy_top_k = 1 if isinstance(self._sampler, QuickSampler) and self._sampler.draws else self._vocab_size
        metadata = build_metadata(ordered, self._processors, penalised, self._vocab_size, greedy_top_k=greedy_top_k)
        if self._compat and penalised:
            metadata.prompt_token_ids = padded_prompts(ordered, self._vocab_size)
        return ordered, metadata

    def _copied(self, logits: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """A float32 copy of ``rows``, good until the next one is made."""
        if len(rows) > len(self._scratch):
            self._scratch = torch.empty(len(rows), self._vocab_size)
        copy = self._scratch[: len(rows)]
        if list(rows) == list(range(len(logits))):
            return copy.copy_(logits)
        for at, row in enumerate(rows):
            copy[at].copy_(logits[row])
        return copy

    def _report(self, rows: Sequence[int], states: Sequence[RequestState]) -> None:
        """Say once of each request that its tokens mean nothing."""
        for state in [states[row] for row in rows if states[row] not in self._reported]:
            log.warning(
                "The logits of request %s have no finite maximum: they hold NaN or infinity, or its sampling "
                "parameters and grammar forbid every token. Its tokens mean nothing from here on",
                state.req_id,
            )
            self._reported = {known for known in self._reported if known.slot != NO_SLOT} | {state}
