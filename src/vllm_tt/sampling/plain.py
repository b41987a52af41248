"""Which rows take the likeliest token of their logits and ask for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.sampling_params import SamplingType

from vllm_tt.sampling.penalties import is_penalised

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams

__all__ = ["is_plain", "min_tokens"]


def is_plain(params: SamplingParams) -> bool:
    """Whether nothing decides a row's token but its logits, once it has its `min_tokens`."""
    return (
        params.sampling_type == SamplingType.GREEDY
        and params.logprobs is None
        and not getattr(params, "logprob_token_ids", None)
        and not is_penalised(params)
        and not (params.logit_bias or params.bad_words_token_ids or params.allowed_token_ids)
        and params.structured_outputs is None
        and getattr(params, "thinking_token_budget", None) is None
    )


def min_tokens(params: SamplingParams) -> int:
    """How many tokens a row has to have before it may stop; 0 where no token would stop it."""
    return params.min_tokens if params.all_stop_token_ids else 0
