"""How the tokens of a submitted step are sampled, once its output is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_tt.batch.sampling_rows import Control
from vllm_tt.sampling.combine import check_grammar, in_vocabulary, together
from vllm_tt.sampling.device import DeviceSampling, Histories, device_params
from vllm_tt.sampling.host import SampledRows
from vllm_tt.sampling.logprobs import device_logprobs
from vllm_tt.scheduler.plan import Phase
from vllm_tt.worker.results import Report

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput

    from vllm_tt.batch.requests import RequestState
    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import HostSampler
    from vllm_tt.sampling.policy import Where
    from vllm_tt.scheduler.plan import StepPlan
    from vllm_tt.worker.outputs import Output

__all__ = ["SamplingStep", "decode_sampling", "prefill_sampling"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SamplingStep:
    """A step's rows and where each is sampled; good for every decode of the same rows."""

    plan: StepPlan
    where: Where
    rows: Rows
    device: DeviceSampling | None
    """What the device was told; None when it does not sample."""
    live: npt.NDArray[np.int64]
    """The rows of the plan that yield a token."""
    at: npt.NDArray[np.integer[Any]]
    """Where each of them is in the model's output."""
    report: Report

    @classmethod
    def of(cls, plan: StepPlan, where: Where, rows: Rows, device: DeviceSampling | None) -> SamplingStep:
        """A step that is being submitted; ``device`` is what the device is told with it, or was told before."""
        live = np.flatnonzero(~plan.intermediate)
        at = plan.slots[live] if plan.phase is Phase.DECODE else live
        return cls(plan=plan, where=where, rows=rows, device=device, live=live, at=at, report=Report(plan, rows))

    def finish(self, output: Output, sampler: HostSampler, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """Sample what the device did not, and bring the tokens to their requests."""
        return self.report.apply(self._sample(output, sampler, grammar))

    def check_grammar(self, grammar: GrammarOutput | None) -> None:
        """Raise where a grammar is for a row that the device samples."""
        if grammar is not None and self.where.device:
            host = set(self.where.host_rows)
            check_grammar(grammar, {req_id for row, req_id in enumerate(self.plan.req_ids) if row not in host})

    def _sample(self, output: Output, sampler: HostSampler, grammar: GrammarOutput | None) -> SampledRows | None:
        """The tokens of the rows that yield one, in the plan's order; None without such a row."""
        if not self.live.size:
            return None
        if output.tokens is None:
            assert output.logits is not None
            return sampler.sample(_pick(output.logits, self.at), self._states(self.live), grammar)
        self.check_grammar(grammar)
        tokens = in_vocabulary(output.tokens[self.at], self.rows.sampling.vocab_size)
        sampled = SampledRows(tokens=tokens, logprobs=self._device_logprobs(tokens, output))
        if not self.where.host_rows:
            return sampled
        assert output.logits is not None
        host = np.array(self.where.host_rows, dtype=np.int64)
        by_host = sampler.sample(output.logits, self._states(host), grammar)
        is_host = np.isin(self.live, host)
        return together(sampled, by_host, np.flatnonzero(is_host), np.flatnonzero(~is_host))

    def _device_logprobs(self, tokens: npt.NDArray[np.int32], output: Output) -> LogprobsLists | None:
        if output.logprobs is None:
            return None
        indices = None if output.indices is None else output.indices[self.at]
        likeliest = self.rows.sampling.takes_likeliest(self.plan.slots[self.live])
        return device_logprobs(tokens, output.logprobs[self.at], indices, likeliest)

    def _states(self, index: npt.NDArray[np.integer[Any]]) -> list[RequestState]:
        return [self.rows.requests[self.plan.req_ids[row]] for row in index.tolist()]


def prefill_sampling(plan: StepPlan, where: Where, rows: Rows) -> DeviceSampling | None:
    """What a prefill tells the device: its rows are those of the plan."""
    if not where.device:
        return None
    index = _without(np.flatnonzero(~plan.intermediate), where.host_rows)
    params = device_params(rows.sampling, len(plan.slots), index, plan.slots[index])
    return DeviceSampling(params=params, logits_rows=where.host_rows)


def decode_sampling(plan: StepPlan, where: Where, rows: Rows) -> DeviceSampling | None:
    """What a decode tells the device: its rows are the slots."""
    if not where.device:
        return None
    slots = plan.slots[_without(np.arange(len(plan.slots)), where.host_rows)]
    histories = None
    if (rows.sampling.controls[slots] & Control.PENALTIES.value).any():
        decoding = set(slots.tolist())
        histories = Histories.of([state if slot in decoding else None for slot, state in enumerate(rows.holders)])
    return DeviceSampling(
        params=device_params(rows.sampling, len(rows), slots, slots),
        logits_rows=tuple(plan.slots[list(where.host_rows)].tolist()),
        histories=histories,
    )


def _without(rows: npt.NDArray[np.int64], taken: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return rows[~np.isin(rows, taken)] if taken else rows


def _pick(logits: torch.Tensor, index: npt.NDArray[np.integer[Any]]) -> torch.Tensor:
    """The rows ``index``; a view where they follow one another."""
    if (np.diff(index) == 1).all():
        return logits[int(index[0]) : int(index[-1]) + 1]
    return logits[index]
