"""The rows of stateful logits processors, which every request keeps while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import BatchUpdateBuilder, LogitsProcessor, MoveDirectionality

from vllm_tt.batch.requests import NO_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate

    from vllm_tt.batch.requests import RequestState

__all__ = ["KeptBudgets", "KeptProcessor", "KeptRows"]


class KeptRows:
    """Rows 0 to n - 1, each of a request of the last step, or of an earlier one that still holds its slot.

    Processors hold their state by row and look for each of their rows in the logits. A prefill has other requests
    than the decodes around it: where a step lacks a row, one of zeros stands in.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[RequestState, int]] = []
        self._step: list[int] = []

    def update(self, states: Sequence[RequestState]) -> tuple[list[RequestState], BatchUpdate | None]:
        """Take in the step of ``states``: these in the order of their rows, and how the rows have changed."""
        present = set(states)
        builder = BatchUpdateBuilder()
        known = set()
        for row, (state, epoch) in enumerate(self._rows):
            if state.epoch == epoch and (state in present or state.slot != NO_SLOT):
                known.add(state)
            else:
                builder.removed_append(row)
        for state in states:
            if state not in known:
                self._add(state, builder)
        self._condense(builder)
        row_of = {state: row for row, (state, _) in enumerate(self._rows)}
        ordered = sorted(states, key=row_of.__getitem__)
        self._step = [row_of[state] for state in ordered]
        return ordered, builder.get_and_reset(len(self._rows))

    def through(self, logits: torch.Tensor, apply: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """What ``apply`` makes of the step's ``logits`` [n, V], which are in the order that `update` gave."""
        if len(self._step) == len(self._rows):
            return apply(logits)
        spread = logits.new_zeros((len(self._rows), logits.shape[1]))
        spread[self._step] = logits
        return apply(spread)[self._step]

    def outputs(self) -> list[list[int]]:
        """The generated tokens of every row."""
        return [state.output_token_ids for state, _ in self._rows]

    def _add(self, state: RequestState, builder: BatchUpdateBuilder) -> None:
        row = builder.pop_removed()
        entry = (state, state.epoch)
        if row is None:
            row = len(self._rows)
            self._rows.append(entry)
        else:
            self._rows[row] = entry
        builder.added.append((row, state.sampling_params, state.prompt_token_ids, state.output_token_ids))

    def _condense(self, builder: BatchUpdateBuilder) -> None:
        """Move the last rows into those that are left empty, as vLLM does."""
        empty = set(builder.removed)
        while (row := builder.peek_removed()) is not None:
            last = max(filled for filled in range(-1, len(self._rows)) if filled not in empty)
            if row > last:
                break
            builder.pop_removed()
            self._rows[row] = self._rows[last]
            builder.moved.append((last, row, MoveDirectionality.UNIDIRECTIONAL))
            empty = empty - {row} | {last}
        del self._rows[len(self._rows) - len(empty) :]


class KeptProcessor(LogitsProcessor):
    """A custom processor on kept rows, as the sampler calls it. Whoever has the rows tells the processor of them."""

    def __init__(self, processor: LogitsProcessor, rows: KeptRows) -> None:
        self._processor = processor
        self._rows = rows

    def is_argmax_invariant(self) -> bool:
        return self._processor.is_argmax_invariant()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        raise NotImplementedError

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return self._rows.through(logits, self._processor.apply)


class KeptBudgets:
    """vLLM's thinking budgets on kept rows, as the sampler calls them."""

    def __init__(self, budgets: Any, rows: KeptRows) -> None:
        self._budgets = budgets
        self._rows = rows

    def has_tracked_requests(self) -> bool:
        return self._budgets.has_tracked_requests()

    def update_state(self, output_token_ids: list[list[int]], *rest: Any, **named: Any) -> None:  # noqa: ARG002
        """The lists of the step are some of the rows'."""
        self._budgets.update_state(self._rows.outputs(), *rest, **named)

    def apply_to_logits(self, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
        return self._rows.through(logits, lambda rows: self._budgets.apply_to_logits(rows, *rest))
