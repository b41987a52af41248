"""Builds the inputs of a step from its plan and the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from vllm_tt.batch.rows import NULL_PAGE
from vllm_tt.batch.step_input import DecodeInput, PrefillInput

if TYPE_CHECKING:
    from vllm_tt.batch.rows import Rows
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["build_decode", "build_prefill"]


def build_prefill(plan: StepPlan, rows: Rows) -> PrefillInput:
    """The plan's prompts or chunks, one row each."""
    tokens = np.zeros((len(plan.req_ids), int(plan.ends.max())), dtype=np.int32)
    for i, (req_id, end) in enumerate(zip(plan.req_ids, plan.ends.tolist(), strict=True)):
        tokens[i, :end] = rows.requests[req_id].tokens(end)
    return PrefillInput(
        tokens=torch.from_numpy(tokens),
        page_table=torch.from_numpy(rows.page_tables[0].ids[plan.slots]),
        prompt_lens=plan.ends.astype(np.int64),
        start_pos=plan.starts.astype(np.int64),
        empty_slots=plan.slots.tolist(),
    )


def build_decode(plan: StepPlan, rows: Rows) -> DecodeInput:
    """Every slot; those the plan does not decode are idle, even when a request holds them."""
    tokens = np.zeros((len(rows), 1), dtype=np.int32)
    tokens[plan.slots, 0] = rows.last_token[plan.slots]
    start_pos = np.full(len(rows), -1, dtype=np.int32)
    start_pos[plan.slots] = plan.starts
    page_table = np.full_like(rows.page_tables[0].ids, NULL_PAGE)
    page_table[plan.slots] = rows.page_tables[0].ids[plan.slots]
    return DecodeInput(
        tokens=torch.from_numpy(tokens),
        page_table=torch.from_numpy(page_table),
        start_pos=torch.from_numpy(start_pos),
    )
