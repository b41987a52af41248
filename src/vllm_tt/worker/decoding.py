"""Decode steps: what is loaded, whether the step may follow the one before unread, and its submission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_tt.batch.build import DecodeBuilder
from vllm_tt.batch.sampling_rows import NO_LOGPROBS
from vllm_tt.sampling.policy import decide
from vllm_tt.worker.overlap import overlap
from vllm_tt.worker.reloads import Reload, Resident
from vllm_tt.worker.sampling_step import SamplingStep, decode_sampling

if TYPE_CHECKING:
    import torch

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.device import DeviceSampling
    from vllm_tt.sampling.policy import DeviceLimits, Where
    from vllm_tt.scheduler.plan import StepPlan
    from vllm_tt.worker.forward import Forward, Handle
    from vllm_tt.worker.overlap import Drain

__all__ = ["Decode", "Decoder"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Decode:
    """A decode that is decided and not submitted yet."""

    plan: StepPlan
    where: Where
    reload: Reload
    page_tables: tuple[torch.Tensor, ...]
    drain: Drain | None
    """Why the steps before are read first."""
    ahead: bool
    """Its output may stay on the device."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Last:
    """The decode before, sampled by the device alone: while its rows stay the same, so does what it was told."""

    version: int
    """That of the rows."""
    step: SamplingStep
    logprobs: bool

    def has_rows_of(self, plan: StepPlan, rows: Rows) -> bool:
        return rows.version == self.version and plan.req_ids == self.step.plan.req_ids


class Decoder:
    """Decides and submits decodes; knows what the device goes on with."""

    def __init__(self, forward: Forward, rows: Rows, *, capacity: int, traced: bool, run_ahead: bool) -> None:
        """``capacity``: positions that a row may have."""
        self._forward = forward
        self._rows = rows
        self._traced = traced
        self._run_ahead = run_ahead
        self._builder = DecodeBuilder(rows)
        self._resident = Resident(rows, capacity=capacity, explicit=forward.explicit_reloads)
        self._told: DeviceSampling | None = None
        """What the device keeps of the sampling arguments it was sent."""
        self._last: _Last | None = None

    def where(self, plan: StepPlan, limits: DeviceLimits) -> Where:
        """Where a decode is sampled. Rows that the device samples stay with it: nothing sends one to the host later."""
        if self._last is not None and self._last.has_rows_of(plan, self._rows):
            return self._last.step.where
        self._last = None
        return decide(plan, self._rows.sampling, limits)

    def plan(self, plan: StepPlan, where: Where) -> Decode:
        """Decide a step; nothing is sent yet."""
        page_tables = self._builder.page_tables(plan)
        reload = self._resident.reload(plan, page_tables) if where.device else Reload(inputs=True)
        verdict = overlap(where, reload, logprobs=self._asks_logprobs(plan), traced=self._traced)
        return Decode(
            plan=plan,
            where=where,
            reload=reload,
            page_tables=page_tables,
            drain=verdict.drain,
            ahead=verdict.ahead and self._run_ahead,
        )

    def submit(self, decode: Decode) -> tuple[SamplingStep, Handle]:
        """Send a step; what it is to be drained for was drained."""
        step = self._step(decode)
        handle = self._forward.decode(self._builder.build(decode.plan), decode.reload, step.device, ahead=decode.ahead)
        if step.device is None:
            self.forget()
            return step, handle
        self._resident.submitted(decode.plan, decode.page_tables, decode.where, decode.reload)
        self._told = replace(step.device, logits_rows=()) if step.device.logits_rows else step.device
        if not decode.where.host_rows:
            self._last = _Last(version=self._rows.version, step=step, logprobs=self._asks_logprobs(decode.plan))
        return step, handle

    def forget(self) -> None:
        """A step of another kind ran: the next decode loads everything."""
        self._resident.forget()
        self._told = self._last = None

    def _step(self, decode: Decode) -> SamplingStep:
        if decode.reload.sampling or not decode.where.device:
            told = decode_sampling(decode.plan, decode.where, self._rows)
        elif self._last is not None:
            return self._last.step
        else:
            told = self._told
        return SamplingStep.of(decode.plan, decode.where, self._rows, told)

    def _asks_logprobs(self, plan: StepPlan) -> bool:
        if self._last is not None:
            return self._last.logprobs
        return bool((self._rows.sampling.num_logprobs[plan.slots] != NO_LOGPROBS).any())
