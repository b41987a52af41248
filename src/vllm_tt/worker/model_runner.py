"""The order of calls in a step: apply, decide, build, forward, then sample and report."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from vllm_tt.batch.build import build_prefill
from vllm_tt.errors import TTError
from vllm_tt.sampling.policy import DeviceLimits, decide
from vllm_tt.scheduler.plan import Phase, TTSchedulerOutput
from vllm_tt.scheduler.record import StepRecord
from vllm_tt.telemetry import DRAINS, HOST_SAMPLING, STEPS, Counters
from vllm_tt.worker.async_steps import PendingStep, StepOutput, StepQueue
from vllm_tt.worker.decoding import Decoder
from vllm_tt.worker.overlap import Drain
from vllm_tt.worker.sampling_step import SamplingStep, prefill_sampling

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import HostSampler
    from vllm_tt.sampling.policy import Where
    from vllm_tt.scheduler.plan import StepPlan
    from vllm_tt.worker.forward import Forward, Handle
    from vllm_tt.worker.outputs import Output

__all__ = ["ModelRunner", "PlanMissing", "RunnerOptions", "StepOrder"]


class PlanMissing(TTError):
    """The step comes without a plan, from a scheduler that is not vllm_tt's: {found}. Leave --scheduler-cls unset."""


class StepOrder(TTError):
    """{call} was called {when}; a step is execute_model, then sample_tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerOptions:
    """How steps are run in this server."""

    limits: DeviceLimits = field(default_factory=DeviceLimits)
    capacity: int
    """Positions that a row of the page table covers."""
    run_ahead: bool = False
    """vLLM schedules a step before it has the tokens of the one before."""
    traced: bool = False
    """Decode runs as a captured trace."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Submitted:
    """A step whose tokens vLLM has not asked for."""

    step: SamplingStep
    output: Output | None
    """What came back at once, or None for a decode that runs ahead."""
    handle: Handle | None
    record: StepRecord


class ModelRunner:
    """Runs the scheduler's steps on a loaded model."""

    def __init__(self, forward: Forward, rows: Rows, sampler: HostSampler, options: RunnerOptions) -> None:
        self.counters = Counters()
        self._forward = forward
        self._rows = rows
        self._sampler = sampler
        self._options = options
        self._decoder = Decoder(
            forward, rows, capacity=options.capacity, traced=options.traced, run_ahead=options.run_ahead
        )
        self._steps = StepQueue(forward.read)
        self._submitted: _Submitted | None = None
        self._record = StepRecord(counters=self.counters)

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run the step's forward; None means that `sample` gives the result."""
        if self._submitted is not None:
            raise StepOrder(call="execute_model", when="before the last step was sampled")
        if not isinstance(output, TTSchedulerOutput):
            raise PlanMissing(found=type(output).__name__)
        with self._steps.applying:
            self._rows.apply(output)
        plan = output.plan
        self._record = output.record or StepRecord(counters=self.counters)
        self.counters = self._record.counters
        self._forward.release(plan.released)
        if plan.phase is Phase.EMPTY:
            return EMPTY_MODEL_RUNNER_OUTPUT
        if plan.phase is Phase.PREFILL:
            where = decide(plan, self._rows.sampling, self._options.limits)
        else:
            where = self._decoder.where(plan, self._options.limits)
        self.counters.count(STEPS, (f"{plan.phase.value} {where.label}",))
        self._record.sampled = where.label
        if where.reasons:
            self._record.reasons = tuple(reason.value for reason in where.reasons)
            self.counters.count(HOST_SAMPLING, self._record.reasons)
        self._submitted = self._prefill(plan, where) if plan.phase is Phase.PREFILL else self._decode(plan, where)
        return None

    def sample(self, grammar: GrammarOutput | None) -> ModelRunnerOutput | StepOutput:
        """The result of the step that `execute` submitted; it may still have to be waited for."""
        if self._submitted is None:
            raise StepOrder(call="sample_tokens", when="without a step")
        submitted, self._submitted = self._submitted, None
        if submitted.handle is None:
            assert submitted.output is not None
            result = submitted.step.finish(submitted.output, self._sampler, grammar)
            submitted.record.ended = perf_counter()
            return result
        submitted.step.check_grammar(grammar)
        pending = PendingStep(
            submitted.handle, lambda output: submitted.step.finish(output, self._sampler, None), submitted.record
        )
        self._steps.submit(pending)
        return StepOutput(self._steps, pending)

    def check(self) -> dict[str, int]:
        """Raise unless requests and rows agree; valid after every step. Returns what is held."""
        with self._steps.applying:
            self._rows.check()
            return self._rows.held()

    def _prefill(self, plan: StepPlan, where: Where) -> _Submitted:
        self._drain(Drain.PREFILL)
        step = SamplingStep.of(plan, where, self._rows, prefill_sampling(plan, where, self._rows))
        inputs, began = build_prefill(plan, self._rows), perf_counter()
        output = self._forward.prefill(inputs, step.device)
        self._record.waited = perf_counter() - began
        if output.rope_deltas is not None:
            self._rows.rope_deltas[plan.slots] = output.rope_deltas
        self._decoder.forget()
        return _Submitted(step=step, output=output, handle=None, record=self._record)

    def _decode(self, plan: StepPlan, where: Where) -> _Submitted:
        decode = self._decoder.plan(plan, where)
        if decode.drain is not None:
            self._drain(decode.drain)
        step, handle = self._decoder.submit(decode)
        if decode.ahead:
            return _Submitted(step=step, output=None, handle=handle, record=self._record)
        began = perf_counter()
        output = self._forward.read(handle)
        self._record.waited = perf_counter() - began
        return _Submitted(step=step, output=output, handle=None, record=self._record)

    def _drain(self, reason: Drain) -> None:
        """Read what is on the device; counted where there is something to wait for."""
        if len(self._steps):
            self.counters.count(DRAINS, (reason.value,))
            self._record.drain = reason.value
            self._steps.drain()
