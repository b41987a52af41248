"""Builds the inputs of a step from its plan and the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from vllm_tt.batch.rows import NULL_PAGE
from vllm_tt.batch.step_input import DecodeInput, PrefillInput

if TYPE_CHECKING:
    import numpy.typing as npt

    from vllm_tt.batch.rows import PageTable, Rows
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["DecodeBuilder", "build_prefill"]


def build_prefill(plan: StepPlan, rows: Rows) -> PrefillInput:
    """The plan's prompts or chunks, one row each."""
    tokens = np.zeros((len(plan.req_ids), int(plan.ends.max())), dtype=np.int32)
    for i, (req_id, end) in enumerate(zip(plan.req_ids, plan.ends.tolist(), strict=True)):
        tokens[i, :end] = rows.requests[req_id].tokens(end)
    return PrefillInput(
        tokens=torch.from_numpy(tokens),
        page_tables=tuple(torch.from_numpy(table.ids[plan.slots]) for table in rows.page_tables),
        prompt_lens=plan.ends.astype(np.int64),
        start_pos=plan.starts.astype(np.int64),
        empty_slots=plan.slots.tolist(),
        images=tuple(
            tuple(image for image in rows.requests[req_id].images if image.start < end)
            for req_id, end in zip(plan.req_ids, plan.ends.tolist(), strict=True)
        ),
    )


class DecodeBuilder:
    """Builds decode inputs: every slot, of which those that the plan does not decode are idle.

    A request may hold a slot that is idle: while its prompt is computed in chunks, or its last token read.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._decoding: npt.NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        """The serial of the request that decodes in each slot; 0 for an idle one."""
        self._version, self._req_ids = rows.version, tuple[str, ...]()
        """Of the rows and of the plan that the page tables were last looked at for."""
        self._page_tables: tuple[torch.Tensor, ...] = ()

    def page_tables(self, plan: StepPlan) -> tuple[torch.Tensor, ...]:
        """For each KV cache group int32 [B, pages of the longest request].

        The same tuple as last time unless a table of them changed.
        """
        rows, slots = self._rows, plan.slots
        changed = any(table.changed[slots].any() for table in rows.page_tables)
        if not changed and rows.version == self._version and plan.req_ids == self._req_ids:
            return self._page_tables
        self._version, self._req_ids = rows.version, plan.req_ids
        decoding = np.zeros_like(self._decoding)
        decoding[slots] = rows.serial[slots]
        if changed or (decoding != self._decoding).any():
            self._decoding = decoding
            self._page_tables = tuple(_copy(table, slots) for table in rows.page_tables)
        return self._page_tables

    def build(self, plan: StepPlan) -> DecodeInput:
        """The step's inputs, with each row's last token as far as it was read."""
        rows, slots = self._rows, plan.slots
        tokens = np.zeros((len(rows), 1), dtype=np.int32)
        tokens[slots, 0] = rows.last_token[slots]
        start_pos = np.full(len(rows), -1, dtype=np.int32)
        start_pos[slots] = plan.starts
        return DecodeInput(
            tokens=torch.from_numpy(tokens),
            page_tables=self.page_tables(plan),
            start_pos=torch.from_numpy(start_pos),
            rope_deltas=rows.rope_deltas,
        )


def _copy(table: PageTable, slots: npt.NDArray[np.int32]) -> torch.Tensor:
    """The pages of ``slots``, null ones for all others; from now on those rows are unchanged."""
    pages = np.full_like(table.ids, NULL_PAGE)
    pages[slots] = table.ids[slots]
    table.changed[slots] = False
    return torch.from_numpy(pages)
