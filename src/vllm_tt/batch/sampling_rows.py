"""The sampling parameters of every slot, as arrays.

A free slot is neutral: it takes the likeliest token and is penalised by nothing, so that no device can
draw for it.
"""

from __future__ import annotations

from enum import IntFlag, auto
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.sampling_params import SamplingType

if TYPE_CHECKING:
    import numpy.typing as npt
    from vllm.sampling_params import SamplingParams

__all__ = ["NO_CONTROLS", "NO_LOGPROBS", "Control", "SamplingRows"]

NO_LOGPROBS = -1
"""``num_logprobs`` of a row that asks for none; 0 asks for the chosen token's alone."""


class Control(IntFlag):
    """What a request asks of its sampling, beyond temperature, top_k and top_p."""

    GRAMMAR = auto()
    LOGIT_BIAS = auto()
    BAD_WORDS = auto()
    ALLOWED_TOKENS = auto()
    MIN_P = auto()
    THINKING_BUDGET = auto()
    LOGPROBS_OF_TOKENS = auto()
    PENALTIES = auto()
    SEED = auto()
    """A seeded draw; the seed of a row that takes the likeliest token decides nothing."""


NO_CONTROLS = Control(0)


class SamplingRows:
    """One row for each slot; arrays are indexed by slot."""

    def __init__(self, rows: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.controls: npt.NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        """`Control` flags."""
        self.temperature: npt.NDArray[np.float32] = np.zeros(rows, dtype=np.float32)
        """0 for a row that takes the likeliest token."""
        self.top_k: npt.NDArray[np.int32] = np.ones(rows, dtype=np.int32)
        """From 1, for a row that takes the likeliest token, to the vocabulary's size."""
        self.top_p: npt.NDArray[np.float32] = np.ones(rows, dtype=np.float32)
        self.presence_penalty: npt.NDArray[np.float32] = np.zeros(rows, dtype=np.float32)
        self.frequency_penalty: npt.NDArray[np.float32] = np.zeros(rows, dtype=np.float32)
        self.repetition_penalty: npt.NDArray[np.float32] = np.ones(rows, dtype=np.float32)
        self.seed: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """Of a row with ``Control.SEED``."""
        self.num_logprobs: npt.NDArray[np.int32] = np.full(rows, NO_LOGPROBS, dtype=np.int32)
        self.prompt_len: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.min_end: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """Tokens of prompt and output before which a row may not stop (``min_tokens``)."""

    def takes_likeliest(self, slots: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which of ``slots`` take the token that is the likeliest by the model's own logits."""
        unpenalised: npt.NDArray[np.bool_] = (self.controls[slots] & Control.PENALTIES.value) == 0
        return (self.temperature[slots] == 0) & unpenalised

    def bind(self, slot: int, params: SamplingParams, prompt_len: int) -> None:
        """Take a request's parameters into its slot."""
        greedy = params.sampling_type == SamplingType.GREEDY
        self.controls[slot] = _controls(params, greedy)
        if not greedy:
            self.temperature[slot] = params.temperature
            self.top_k[slot] = params.top_k if 0 < params.top_k < self.vocab_size else self.vocab_size
            self.top_p[slot] = params.top_p
            self.seed[slot] = _in_64_bits(params.seed or 0)
        self.presence_penalty[slot] = params.presence_penalty
        self.frequency_penalty[slot] = params.frequency_penalty
        self.repetition_penalty[slot] = params.repetition_penalty
        if params.logprobs is not None:
            self.num_logprobs[slot] = self.vocab_size if params.logprobs == -1 else params.logprobs
        self.prompt_len[slot] = prompt_len
        if params.min_tokens and params.all_stop_token_ids:
            self.min_end[slot] = prompt_len + params.min_tokens

    def clear(self, slot: int) -> None:
        """Make a slot neutral."""
        self.controls[slot] = 0
        self.temperature[slot] = 0.0
        self.top_k[slot] = 1
        self.top_p[slot] = self.repetition_penalty[slot] = 1.0
        self.presence_penalty[slot] = self.frequency_penalty[slot] = 0.0
        self.seed[slot] = self.prompt_len[slot] = self.min_end[slot] = 0
        self.num_logprobs[slot] = NO_LOGPROBS


def _in_64_bits(seed: int) -> int:
    """Wrapped into what an int64 holds: a client of the engine itself may send any integer."""
    return (seed + 2**63) % 2**64 - 2**63


def _controls(params: SamplingParams, greedy: bool) -> Control:
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    asked = {
        Control.GRAMMAR: params.structured_outputs is not None,
        Control.LOGIT_BIAS: bool(params.logit_bias),
        Control.BAD_WORDS: bool(params.bad_words_token_ids),
        Control.ALLOWED_TOKENS: params.allowed_token_ids is not None,
        Control.MIN_P: params.min_p > 0.0,
        Control.THINKING_BUDGET: getattr(params, "thinking_token_budget", None) is not None,
        Control.LOGPROBS_OF_TOKENS: bool(getattr(params, "logprob_token_ids", None)),
        Control.PENALTIES: penalties != (0.0, 0.0, 1.0),
        Control.SEED: params.seed is not None and not greedy,
    }
    flags = NO_CONTROLS
    for control, is_asked in asked.items():
        if is_asked:
            flags |= control
    return flags
