"""Decode steps: what is loaded, whether the step may follow the one before unread, and its submission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_tt.batch.build import DecodeBuilder
from vllm_tt.batch.sampling_rows import NO_LOGPROBS
from vllm_tt.worker.overlap import overlap
from vllm_tt.worker.reloads import Reload, Resident
from vllm_tt.worker.sampling_step import SamplingStep

if TYPE_CHECKING:
    import torch

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.device import DeviceSampling
    from vllm_tt.sampling.policy import Where
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
    page_table: torch.Tensor
    drain: Drain | None
    """Why the steps before are read first."""
    ahead: bool
    """Its output may stay on the device."""


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

    def plan(self, plan: StepPlan, where: Where) -> Decode:
        """Decide a step; nothing is sent yet."""
        page_table = self._builder.page_table(plan)
        reload = self._resident.reload(plan, page_table) if where.device else Reload(inputs=True)
        logprobs = bool((self._rows.sampling.num_logprobs[plan.slots] != NO_LOGPROBS).any())
        verdict = overlap(where, reload, logprobs=logprobs, traced=self._traced)
        return Decode(
            plan=plan,
            where=where,
            reload=reload,
            page_table=page_table,
            drain=verdict.drain,
            ahead=verdict.ahead and self._run_ahead,
        )

    def submit(self, decode: Decode) -> tuple[SamplingStep, Handle]:
        """Send a step; what it is to be drained for was drained."""
        known = None if decode.reload.sampling else self._told
        step = SamplingStep.decode(decode.plan, decode.where, self._rows, known if decode.where.device else None)
        handle = self._forward.decode(self._builder.build(decode.plan), decode.reload, step.device, ahead=decode.ahead)
        if decode.where.device:
            self._resident.submitted(decode.plan, decode.page_table, decode.where, decode.reload)
            if step.device is not None and step.device is not known:
                self._told = replace(step.device, logits_rows=())
        else:
            self.forget()
        return step, handle

    def forget(self) -> None:
        """A step of another kind ran: the next decode loads everything."""
        self._resident.forget()
        self._told = None
