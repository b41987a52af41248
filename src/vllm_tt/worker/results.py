"""Applies a step's tokens to its requests and reports them to vLLM."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.outputs import ModelRunnerOutput

if TYPE_CHECKING:
    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import SampledRows
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["Report"]


class Report:
    """Where the tokens of a step's rows go: made when it is submitted, and good for every step of the same rows."""

    def __init__(self, plan: StepPlan, rows: Rows) -> None:
        self._rows = rows
        self._req_ids = list(plan.req_ids)
        self._index = {req_id: row for row, req_id in enumerate(plan.req_ids)}
        self._live = np.flatnonzero(~plan.intermediate).tolist()
        self._slots = plan.slots[self._live]
        self._serials = rows.serial[self._slots]
        self._outputs = [rows.requests[plan.req_ids[row]].output_token_ids for row in self._live]

    def apply(self, sampled: SampledRows | None) -> ModelRunnerOutput:
        """``sampled`` has one token for each row that is not an intermediate chunk, in the plan's order.

        Every token is reported, but only a request that still holds its slot goes on from it: one that was
        preempted replays what vLLM then says.
        """
        tokens = [] if sampled is None else sampled.tokens.tolist()
        if sampled is not None:
            holds = self._rows.serial[self._slots] == self._serials
            self._rows.last_token[self._slots[holds]] = sampled.tokens[holds]
            for output, token, its in zip(self._outputs, tokens, holds.tolist(), strict=True):
                if its:
                    output.append(token)
        reported: list[list[int]] = [[] for _ in self._req_ids]
        for row, token in zip(self._live, tokens, strict=True):
            reported[row].append(token)
        logprobs = sampled.logprobs if sampled is not None else None
        if logprobs is not None:
            # vLLM finds a request's logprobs by the tokens reported before it.
            logprobs = logprobs._replace(cu_num_generated_tokens=[0, *accumulate(map(len, reported))])
        return ModelRunnerOutput(
            req_ids=self._req_ids, req_id_to_index=self._index, sampled_token_ids=reported, logprobs=logprobs
        )
