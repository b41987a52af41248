"""How one submitted step's tokens are sampled, once its output is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_tt.batch.sampling_rows import Control
from vllm_tt.sampling.combine import check_grammar, device_rows, together
from vllm_tt.sampling.device import DeviceSampling, Histories, device_params
from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from vllm.v1.core.sched.output import GrammarOutput

    from vllm_tt.batch.requests import RequestState
    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.host import HostSampler, SampledRows
    from vllm_tt.sampling.policy import Where
    from vllm_tt.scheduler.plan import StepPlan
    from vllm_tt.worker.outputs import Output

__all__ = ["SamplingStep"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SamplingStep:
    """A step's rows and where each is sampled."""

    plan: StepPlan
    where: Where
    rows: Rows
    serials: npt.NDArray[np.int64]
    """Of the plan's slots, when the step was submitted."""
    device: DeviceSampling | None
    """What the device was told; None when it does not sample."""

    @classmethod
    def prefill(cls, plan: StepPlan, where: Where, rows: Rows) -> SamplingStep:
        """A prefill's rows are those of the plan."""
        device = None
        if where.device:
            index = _without(np.flatnonzero(~plan.intermediate), where.host_rows)
            params = device_params(rows.sampling, len(plan.slots), index, plan.slots[index])
            device = DeviceSampling(params=params, logits_rows=where.host_rows)
        return cls(plan=plan, where=where, rows=rows, serials=rows.serial[plan.slots], device=device)

    @classmethod
    def decode(cls, plan: StepPlan, where: Where, rows: Rows, known: DeviceSampling | None) -> SamplingStep:
        """A decode's rows are the slots; ``known`` is what the device was told already, if it still holds."""
        device = known
        if where.device and device is None:
            slots = plan.slots[_without(np.arange(len(plan.slots)), where.host_rows)]
            penalised = (rows.sampling.controls[slots] & Control.PENALTIES.value).any()
            decoding = set(plan.slots.tolist())
            device = DeviceSampling(
                params=device_params(rows.sampling, len(rows), slots, slots),
                logits_rows=tuple(plan.slots[list(where.host_rows)].tolist()),
                histories=Histories.of([state if slot in decoding else None for slot, state in enumerate(rows.holders)])
                if penalised
                else None,
            )
        return cls(plan=plan, where=where, rows=rows, serials=rows.serial[plan.slots], device=device)

    def check_grammar(self, grammar: GrammarOutput | None) -> None:
        """Raise where a grammar is for a row that the device samples."""
        if grammar is not None and self.where.device:
            host = set(self.where.host_rows)
            check_grammar(grammar, {req_id for row, req_id in enumerate(self.plan.req_ids) if row not in host})

    def sample(self, output: Output, sampler: HostSampler, grammar: GrammarOutput | None) -> SampledRows | None:
        """The tokens of the rows that yield one, in the plan's order; None without such a row."""
        plan, host = self.plan, np.array(self.where.host_rows, dtype=np.int64)
        live = np.flatnonzero(~plan.intermediate)
        if not live.size:
            return None
        index = plan.slots if plan.phase is Phase.DECODE else np.arange(len(plan.slots))
        if output.tokens is None:
            assert output.logits is not None
            return sampler.sample(_pick(output.logits, index[live]), self._states(live), grammar)
        self.check_grammar(grammar)
        at, slots = index[live], plan.slots[live]
        sampled = device_rows(
            output.tokens[at],
            None if output.logprobs is None else output.logprobs[at],
            None if output.indices is None else output.indices[at],
            self.rows.sampling.takes_likeliest(slots),
            self.rows.sampling,
        )
        if not host.size:
            return sampled
        assert output.logits is not None
        by_host = sampler.sample(output.logits, self._states(host), grammar)
        is_host = np.isin(live, host)
        return together(sampled, by_host, np.flatnonzero(is_host), np.flatnonzero(~is_host))

    def _states(self, index: npt.NDArray[np.integer[Any]]) -> list[RequestState]:
        return [self.rows.requests[self.plan.req_ids[row]] for row in index.tolist()]


def _without(rows: npt.NDArray[np.int64], taken: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return rows[~np.isin(rows, taken)] if taken else rows


def _pick(logits: torch.Tensor, index: npt.NDArray[np.integer[Any]]) -> torch.Tensor:
    """The rows ``index``; a view where they follow one another."""
    if (np.diff(index) == 1).all():
        return logits[int(index[0]) : int(index[-1]) + 1]
    return logits[index]
