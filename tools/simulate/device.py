"""What a step costs on the simulated device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["DeviceModel"]

NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceModel:
    """Costs in milliseconds. A decode step costs the same for one request as for all: it is padded."""

    prefill_token_ms: float = 0.05
    prefill_step_ms: float = 0.0
    """Added to every prefill step."""
    decode_step_ms: float = 10.0
    switch_ms: float = 0.0
    """Added to a step whose phase is not that of the step before."""
    host_ms: float = 0.0
    """Host time a step, before the device can start; hidden by the step before when scheduling is asynchronous."""

    @property
    def host_ns(self) -> int:
        return round(self.host_ms * NS_PER_MS)

    @property
    def switch_ns(self) -> int:
        return round(self.switch_ms * NS_PER_MS)

    def step_ns(self, plan: StepPlan) -> int:
        """Device time of one step, without a switch."""
        if plan.phase is Phase.DECODE:
            return round(self.decode_step_ms * NS_PER_MS)
        if plan.phase is Phase.PREFILL:
            tokens = int((plan.ends - plan.starts).sum())
            return round((self.prefill_step_ms + self.prefill_token_ms * tokens) * NS_PER_MS)
        return 0
