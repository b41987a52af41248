"""Host sampling: vLLM's own sampler and logits processors over the live rows of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.sampler import Sampler

from vllm_tt.errors import TTError
from vllm_tt.platform.compat import thinking_budgets
from vllm_tt.sampling.grammar import apply_grammar
from vllm_tt.sampling.metadata import build_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.outputs import LogprobsLists
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_tt.batch.requests import RequestState

__all__ = ["HostSampler", "NarrowLogits", "SampledRows"]


class NarrowLogits(TTError):
    """The adapter's logits have {found} columns, the vocabulary of {model} has {vocab} tokens. Columns past the
    vocabulary are padding and may be there; none of the vocabulary may be missing.
    """


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampledRows:
    """One token for each row, in the order the rows were given."""

    tokens: npt.NDArray[np.int32]
    logprobs: LogprobsLists | None


class HostSampler:
    """Samples any request that vLLM can describe."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        model_config = vllm_config.model_config
        self._vllm_config = vllm_config
        self._vocab_size: int = model_config.get_vocab_size()
        self._custom = tuple(model_config.logits_processors or ())
        self._sampler = Sampler(logprobs_mode=model_config.logprobs_mode)
        self._members: tuple[tuple[RequestState, int], ...] = ()
        self._metadata: SamplingMetadata | None = None

    def sample(
        self, logits: torch.Tensor, states: Sequence[RequestState], grammar: GrammarOutput | None
    ) -> SampledRows:
        """Sample one token for each of ``states`` from ``logits`` [len(states), V]."""
        if logits.shape[1] < self._vocab_size:
            raise NarrowLogits(
                model=self._vllm_config.model_config.model, vocab=self._vocab_size, found=logits.shape[1]
            )
        logits = logits[:, : self._vocab_size]
        if grammar is not None:
            logits = logits.to(torch.float32, copy=True)
            apply_grammar(logits, [state.req_id for state in states], grammar)
        out = self._sampler(logits, self._metadata_for(states))
        return SampledRows(
            tokens=out.sampled_token_ids.view(-1).numpy(),
            logprobs=out.logprobs_tensors.tolists() if out.logprobs_tensors is not None else None,
        )

    def _metadata_for(self, states: Sequence[RequestState]) -> SamplingMetadata:
        """The metadata of these rows, built anew only when the rows are others than last time."""
        # The states, not their ids: a client may use an id again.
        members = tuple((state, state.epoch) for state in states)
        if self._metadata is None or members != self._members:
            thinking = thinking_budgets(self._vllm_config, len(states))
            self._metadata = build_metadata(states, self._processors(), self._vocab_size, thinking)
            self._members = members
        else:
            for processor in self._metadata.logitsprocs.all:
                # Processors are told of every step, as in vLLM's own runner; None: the same rows.
                processor.update_state(None)
        return self._metadata

    def _processors(self) -> Any:
        return build_logitsprocs(self._vllm_config, torch.device("cpu"), False, False, self._custom)
