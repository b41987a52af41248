"""The sampling parameters of one row, out of the contract's lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_tt.contract import DeviceSamplingParams

__all__ = ["RowParams"]

_LEAST_TEMPERATURE = 1e-5
"""Below it vLLM's sampler takes the likeliest token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowParams:
    """A row's item of each list of `DeviceSamplingParams`."""

    temperature: float
    top_k: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    wants_logprobs: bool

    @classmethod
    def of(cls, params: DeviceSamplingParams) -> tuple[RowParams, ...]:
        """One for each row."""
        columns = {
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "presence_penalty": params.presence_penalty,
            "frequency_penalty": params.frequency_penalty,
            "repetition_penalty": params.repetition_penalty,
            "seed": params.seed,
            "wants_logprobs": params.enable_log_probs,
        }
        rows = zip(*columns.values(), strict=True)
        return tuple(cls(**dict(zip(columns, row, strict=True))) for row in rows)

    @property
    def is_random(self) -> bool:
        return self.temperature >= _LEAST_TEMPERATURE

    @property
    def is_penalised(self) -> bool:
        return (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0.0, 0.0, 1.0)
