"""Applies a step's tokens to its requests and reports them to vLLM."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from vllm.v1.outputs import ModelRunnerOutput

if TYPE_CHECKING:
    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import SampledRows
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["apply_results"]


def apply_results(plan: StepPlan, sampled: SampledRows | None, rows: Rows) -> ModelRunnerOutput:
    """``sampled`` has one token for each row that is not an intermediate chunk, in the plan's order."""
    tokens = iter(sampled.tokens.tolist() if sampled is not None else ())
    reported: list[list[int]] = []
    for req_id, slot, intermediate in zip(plan.req_ids, plan.slots.tolist(), plan.intermediate.tolist(), strict=True):
        if intermediate:
            reported.append([])
            continue
        token = next(tokens)
        rows.requests[req_id].output_token_ids.append(token)
        rows.last_token[slot] = token
        reported.append([token])
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
