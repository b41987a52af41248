"""The logits processors of a server, and what they are told of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import (
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessors,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
    build_logitsprocs,
)

from vllm_tt.platform.compat import thinking_budgets
from vllm_tt.sampling.kept import KeptBudgets, KeptProcessor, KeptRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig

    from vllm_tt.batch.requests import RequestState

__all__ = ["LoadedProcessors"]

_OF_PARAMETERS = (LogitBiasLogitsProcessor, MinPLogitsProcessor, MinTokensLogitsProcessor)
"""vLLM's own: all they know of a row follows from its parameters and its tokens."""


class LoadedProcessors:
    """One set for the life of the server. vLLM's own know the rows of the step; custom ones keep theirs."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        custom = tuple(vllm_config.model_config.logits_processors or ())
        loaded = list(build_logitsprocs(vllm_config, torch.device("cpu"), False, False, custom).all)
        budgets = thinking_budgets(vllm_config, vllm_config.scheduler_config.max_num_seqs)
        rows = KeptRows()
        self._rows = rows
        self._own = [processor for processor in loaded if isinstance(processor, _OF_PARAMETERS)]
        self._custom = [processor for processor in loaded if not isinstance(processor, _OF_PARAMETERS)]
        self._budgets = budgets
        self._size = 0
        self.for_sampler = LogitsProcessors(
            processor if isinstance(processor, _OF_PARAMETERS) else KeptProcessor(processor, rows)
            for processor in loaded
        )
        self.budgets = None if budgets is None else KeptBudgets(budgets, rows)
        """What the sampling metadata holds beside `for_sampler`, where reasoning is configured."""

    @property
    def custom(self) -> bool:
        """Whether some are not vLLM's own: what they do to a row is not seen from its parameters."""
        return bool(self._custom)

    def begin(self, states: Sequence[RequestState]) -> list[RequestState]:
        """Tell all of a step whose rows are others than the last step's; the order in which its rows are to be."""
        ordered = list(states)
        if self._custom or self._budgets is not None:
            ordered, change = self._rows.update(states)
            for processor in self._custom:
                processor.update_state(change)
            if self._budgets is not None:
                self._budgets.sync_batch(change)
        update = BatchUpdate(
            batch_size=len(ordered),
            removed=list(range(len(ordered), self._size))[::-1],
            added=[
                (row, state.sampling_params, state.prompt_token_ids, state.output_token_ids)
                for row, state in enumerate(ordered)
            ],
            moved=[],
        )
        self._size = len(ordered)
        for own in self._own:
            own.update_state(update)
        return ordered

    def go_on(self) -> None:
        """Tell all of a step with the same rows, which vLLM's processors expect for every step."""
        for processor in (*self._custom, *self._own):
            processor.update_state(None)
