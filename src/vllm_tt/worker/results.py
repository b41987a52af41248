"""Applies a step's tokens to its requests and reports them to vLLM."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.outputs import ModelRunnerOutput

if TYPE_CHECKING:
    import numpy.typing as npt

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import SampledRows
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["apply_results"]


def apply_results(
    plan: StepPlan, sampled: SampledRows | None, rows: Rows, serials: npt.NDArray[np.int64]
) -> ModelRunnerOutput:
    """``sampled`` has one token for each row that is not an intermediate chunk, in the plan's order.

    ``serials`` are those of the plan's slots when the step was submitted: every token is reported, but only a
    request that still holds its slot goes on from it. One that was preempted replays what vLLM then says.
    """
    live = np.flatnonzero(~plan.intermediate)
    slots = plan.slots[live]
    tokens = [] if sampled is None else sampled.tokens.tolist()
    for slot, token, holds in zip(slots.tolist(), tokens, (rows.serial[slots] == serials[live]).tolist(), strict=True):
        if holds and (state := rows.holders[slot]) is not None:
            state.output_token_ids.append(token)
            rows.last_token[slot] = token
    reported: list[list[int]] = [[] for _ in plan.req_ids]
    for row, token in zip(live.tolist(), tokens, strict=True):
        reported[row] = [token]
    logprobs = sampled.logprobs if sampled is not None else None
    if logprobs is not None:
        # vLLM finds a request's logprobs by the tokens reported before it.
        logprobs = logprobs._replace(cu_num_generated_tokens=[0, *accumulate(map(len, reported))])
    return ModelRunnerOutput(
        req_ids=list(plan.req_ids),
        req_id_to_index={req_id: i for i, req_id in enumerate(plan.req_ids)},
        sampled_token_ids=reported,
        logprobs=logprobs,
    )
