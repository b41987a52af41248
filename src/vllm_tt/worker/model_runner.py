"""The order of calls in a step: apply, build, forward, then sample and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from vllm_tt.batch.build import build_decode, build_prefill
from vllm_tt.errors import TTError
from vllm_tt.scheduler.plan import Phase, StepPlan, TTSchedulerOutput
from vllm_tt.worker.results import apply_results

if TYPE_CHECKING:
    import torch
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import HostSampler
    from vllm_tt.worker.forward import Forward

__all__ = ["ModelRunner", "PlanMissing", "StepOrder"]


class PlanMissing(TTError):
    """The step comes without a plan, from a scheduler that is not vllm_tt's: {found}. Leave --scheduler-cls unset."""


class StepOrder(TTError):
    """{call} was called {when}; a step is execute_model, then sample_tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class _Submitted:
    """A forward whose tokens have not been sampled."""

    plan: StepPlan
    logits: torch.Tensor
    """[n, V] in row order for a prefill, [B, V] by slot for a decode."""


class ModelRunner:
    """Runs the scheduler's steps on a loaded model."""

    def __init__(self, forward: Forward, rows: Rows, sampler: HostSampler) -> None:
        self._forward = forward
        self._rows = rows
        self._sampler = sampler
        self._submitted: _Submitted | None = None

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run the step's forward; None means that `sample` gives the result."""
        if self._submitted is not None:
            raise StepOrder(call="execute_model", when="before the last step was sampled")
        if not isinstance(output, TTSchedulerOutput):
            raise PlanMissing(found=type(output).__name__)
        self._rows.apply(output)
        plan = output.plan
        if plan.phase is Phase.EMPTY:
            return EMPTY_MODEL_RUNNER_OUTPUT
        if plan.phase is Phase.PREFILL:
            logits = self._forward.prefill(build_prefill(plan, self._rows))
        else:
            logits = self._forward.decode(build_decode(plan, self._rows))
        self._submitted = _Submitted(plan, logits)
        return None

    def sample(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """The result of the step that `execute` submitted."""
        if self._submitted is None:
            raise StepOrder(call="sample_tokens", when="without a step")
        submitted, self._submitted = self._submitted, None
        plan = submitted.plan
        live = np.flatnonzero(~plan.intermediate)
        if not live.size:
            return apply_results(plan, None, self._rows)
        states = [self._rows.requests[plan.req_ids[row]] for row in live.tolist()]
        index = live if plan.phase is Phase.PREFILL else plan.slots[live]
        sampled = self._sampler.sample(submitted.logits[index], states, grammar)
        return apply_results(plan, sampled, self._rows)

    def check(self) -> dict[str, int]:
        """Raise unless requests and rows agree; valid after every step. Returns what is held."""
        self._rows.check()
        return self._rows.held()
