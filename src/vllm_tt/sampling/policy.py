"""Where a step's tokens are sampled, and why: a pure function of its rows and of what the device can do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from vllm_tt.batch.sampling_rows import NO_CONTROLS, NO_LOGPROBS, Control
from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    import numpy.typing as npt

    from vllm_tt.batch.sampling_rows import SamplingRows
    from vllm_tt.config import TTConfig
    from vllm_tt.contract import Capabilities
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["DeviceLimits", "Reason", "Where", "decide"]

_CHIPS_WITH_LOGPROBS = (8, 32)
"""Chips of a lane on which tt-metal's generators compute logprobs: the chosen token's, or the likeliest 32."""
_MODELS_WITH_LIKELIEST = ("gpt_oss",)


class Reason(Enum):
    """Why tokens are sampled on the host although device sampling is on."""

    ALWAYS = "always_compat_sampling"
    PREFILL = "prefill with sample_on_device_mode decode_only"
    INTERMEDIATE = "intermediate prefill chunks"
    PROCESSORS = "custom logits processors"
    GRAMMAR = "structured output"
    LOGPROBS = "logprobs"
    LOGIT_BIAS = "logit_bias"
    BAD_WORDS = "bad_words"
    ALLOWED_TOKENS = "allowed_token_ids"
    MIN_TOKENS = "min_tokens"
    MIN_P = "min_p"
    TOP_K = "top_k"
    PENALTIES = "penalties"
    SEED = "seed"
    THINKING_BUDGET = "thinking_token_budget"


_BY_CONTROL = {
    Control.GRAMMAR: Reason.GRAMMAR,
    Control.LOGIT_BIAS: Reason.LOGIT_BIAS,
    Control.BAD_WORDS: Reason.BAD_WORDS,
    Control.ALLOWED_TOKENS: Reason.ALLOWED_TOKENS,
    Control.MIN_P: Reason.MIN_P,
    Control.THINKING_BUDGET: Reason.THINKING_BUDGET,
    Control.LOGPROBS_OF_TOKENS: Reason.LOGPROBS,
    Control.PENALTIES: Reason.PENALTIES,
    Control.SEED: Reason.SEED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceLimits:
    """What the device samples in this server."""

    prefill: bool = False
    decode: bool = False
    host_reason: Reason | None = None
    """Why the host samples every step, although the device could."""
    host_controls: Control = NO_CONTROLS
    """Controls that the device does not apply."""
    row_logits: bool = False
    max_top_k: int | None = None
    max_logprobs: int = NO_LOGPROBS

    @classmethod
    def of(
        cls,
        capabilities: Capabilities,
        options: TTConfig,
        *,
        chips_per_lane: int,
        model_type: str,
        logprobs_mode: str,
        custom_processors: bool,
    ) -> DeviceLimits:
        """The limits of a model as served: what it declares, what the operator chose and what the mesh gives.

        The device's logprobs are those of the logits as they come; other modes of ``--logprobs-mode`` are the host's.
        """
        raw = logprobs_mode == "raw_logprobs"
        mode = options.sample_on_device_mode if capabilities.supports_sample_on_device else None
        host = ~NO_CONTROLS
        if capabilities.supports_device_penalties:
            host &= ~Control.PENALTIES
        # A seeded request's draws must not depend on its neighbours. So all of them are the device's, which takes a
        # device that repeats them after preemption (in prefill) and that no neighbour sends to the host; or none is.
        if capabilities.supports_device_seeds and capabilities.supports_row_logits and mode == "all":
            host &= ~Control.SEED
        return cls(
            prefill=mode == "all",
            decode=mode is not None,
            host_reason=_host_reason(always=options.always_compat_sampling, custom_processors=custom_processors),
            host_controls=host,
            row_logits=capabilities.supports_row_logits,
            max_top_k=capabilities.max_device_top_k,
            max_logprobs=_max_logprobs(capabilities, chips_per_lane, model_type) if raw else NO_LOGPROBS,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """The decision for one step."""

    device: bool
    """The device samples, every row but ``host_rows``."""
    host_rows: tuple[int, ...] = ()
    """Rows of the plan that the host samples, in order."""
    reasons: tuple[Reason, ...] = ()
    """Why there are ``host_rows``; empty where device sampling is off."""

    @property
    def label(self) -> str:
        return ("split" if self.host_rows else "device") if self.device else "host"


def decide(plan: StepPlan, rows: SamplingRows, limits: DeviceLimits) -> Where:
    """Where the tokens of ``plan`` are sampled; intermediate chunks yield none."""
    live = np.flatnonzero(~plan.intermediate)
    in_prefill = plan.phase is Phase.PREFILL
    if not limits.decode:
        return Where(device=False, host_rows=tuple(live.tolist()))
    whole = _reason_of_the_step(plan, limits, in_prefill)
    if whole is not None:
        return Where(device=False, host_rows=tuple(live.tolist()), reasons=(whole,) if live.size else ())
    special, reasons = _special_rows(plan, rows, limits)
    host = live[special[live]]
    if not host.size:
        return Where(device=bool(live.size))
    if not limits.row_logits or host.size == live.size:
        return Where(device=False, host_rows=tuple(live.tolist()), reasons=reasons)
    return Where(device=True, host_rows=tuple(host.tolist()), reasons=reasons)


def _reason_of_the_step(plan: StepPlan, limits: DeviceLimits, in_prefill: bool) -> Reason | None:
    if limits.host_reason is not None:
        return limits.host_reason
    if in_prefill and not limits.prefill:
        return Reason.PREFILL
    # With row logits the tokens of intermediate chunks are left unused; otherwise every row is taken for a live one.
    if not limits.row_logits and plan.intermediate.any():
        return Reason.INTERMEDIATE
    return None


def _special_rows(
    plan: StepPlan, rows: SamplingRows, limits: DeviceLimits
) -> tuple[npt.NDArray[np.bool_], tuple[Reason, ...]]:
    """Which rows of the plan the device cannot sample, and every reason among those that yield a token."""
    slots, yields = plan.slots, ~plan.intermediate
    controls = rows.controls[slots] & limits.host_controls.value
    found = {
        Reason.MIN_TOKENS: plan.ends < rows.min_end[slots],
        Reason.LOGPROBS: _unavailable_logprobs(plan, rows, limits),
    }
    if limits.max_top_k is not None:
        found[Reason.TOP_K] = (rows.temperature[slots] > 0) & (rows.top_k[slots] > limits.max_top_k)
    if plan.phase is Phase.PREFILL:
        # A prefill takes all of its tokens for the prompt; those of a resumed request are partly its output.
        penalised = (rows.controls[slots] & Control.PENALTIES.value) != 0
        found[Reason.PENALTIES] = penalised & (plan.ends > rows.prompt_len[slots])
    # That would break the row of a seed's draws: where such a row is penalised, all of them are the host's.
    both = (Control.SEED | Control.PENALTIES).value
    found[Reason.SEED] = (rows.controls[slots] & both) == both
    special = controls != 0
    for mask in found.values():
        special = special | mask
    if not special.any():
        return special, ()
    asked = int(np.bitwise_or.reduce(controls[yields], initial=0))
    reasons = [reason for control, reason in _BY_CONTROL.items() if asked & control.value]
    reasons += [reason for reason, mask in found.items() if (mask & yields).any()]
    return special, tuple(dict.fromkeys(reasons))


def _unavailable_logprobs(plan: StepPlan, rows: SamplingRows, limits: DeviceLimits) -> npt.NDArray[np.bool_]:
    slots = plan.slots
    asked = rows.num_logprobs[slots]
    if limits.max_logprobs <= 0:
        # The chosen token's alone: it is also the likeliest one's where nothing but the logits chose it.
        most = np.where(
            rows.takes_likeliest(slots), limits.max_logprobs + (limits.max_logprobs == 0), limits.max_logprobs
        )
        return asked > most
    # The chosen token is looked up among the likeliest: there if it is one of them whatever was drawn.
    reach = np.where((rows.controls[slots] & Control.PENALTIES.value) == 0, rows.top_k[slots], rows.vocab_size)
    return (asked != NO_LOGPROBS) & ((asked > limits.max_logprobs) | (reach > limits.max_logprobs))


def _host_reason(*, always: bool, custom_processors: bool) -> Reason | None:
    if always:
        return Reason.ALWAYS
    return Reason.PROCESSORS if custom_processors else None


def _max_logprobs(capabilities: Capabilities, chips: int, model_type: str) -> int:
    if capabilities.max_device_logprobs is not None:
        return capabilities.max_device_logprobs
    if chips not in _CHIPS_WITH_LOGPROBS:
        return NO_LOGPROBS
    return 32 if model_type in _MODELS_WITH_LIKELIEST else 0
