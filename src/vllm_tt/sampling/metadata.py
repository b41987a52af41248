"""vLLM's sampling metadata for the rows of one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from vllm.sampling_params import SamplingParams, SamplingType
from vllm.v1.sample.metadata import SamplingMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_tt.batch.requests import RequestState
    from vllm_tt.sampling.loaded import LoadedProcessors
    from vllm_tt.sampling.penalties import PenalisedRow

__all__ = ["RowsMetadata", "build_metadata", "forget_impossible", "padded_prompts"]

T = TypeVar("T")


@dataclass
class RowsMetadata(SamplingMetadata):
    """vLLM's, with penalties by row in place of its tables."""

    penalised: dict[int, PenalisedRow] = field(default_factory=dict)


def build_metadata(
    states: Sequence[RequestState],
    processors: LoadedProcessors,
    penalised: dict[int, PenalisedRow],
    vocab_size: int,
    *,
    greedy_top_k: int,
) -> RowsMetadata:
    """Metadata for one row per state, in the order in which ``processors`` have them.

    Beside random rows, vLLM draws for those that take the likeliest token, too, and does not use it: with
    ``greedy_top_k`` tokens to draw from.

    Lists of generated tokens are shared with the states, so the result stays valid from step to
    step while the rows are the same.
    """
    params = [state.sampling_params for state in states]
    greedy = [p.sampling_type == SamplingType.GREEDY for p in params]
    return RowsMetadata(
        temperature=None if all(greedy) else _temperatures(params, greedy),
        all_greedy=all(greedy),
        all_random=not any(greedy),
        top_p=_column(params, lambda p: p.top_p) if any(p.top_p < 1.0 for p in params) else None,
        top_k=None if all(greedy) else _top_k(params, vocab_size, greedy_top_k),
        generators={i: s.generator for i, s in enumerate(states) if s.generator is not None and not greedy[i]},
        max_num_logprobs=_max_num_logprobs(params, vocab_size),
        logprob_token_ids=_by_row(params, lambda p: getattr(p, "logprob_token_ids", None)) or None,
        no_penalties=not penalised,
        prompt_token_ids=None,
        frequency_penalties=_column(params, lambda p: p.frequency_penalty),
        presence_penalties=_column(params, lambda p: p.presence_penalty),
        repetition_penalties=_column(params, lambda p: p.repetition_penalty),
        output_token_ids=[state.output_token_ids for state in states],
        allowed_token_ids_mask=_disallowed(params, vocab_size),
        bad_words_token_ids=_by_row(params, lambda p: _possible(p.bad_words_token_ids or (), vocab_size)),
        logitsprocs=processors.for_sampler,
        penalised=penalised,
        **({} if processors.budgets is None else {"thinking_budget_state_holder": processors.budgets}),
    )


def forget_impossible(params: SamplingParams, vocab_size: int) -> None:
    """Drop, in place, what vLLM's processors would look up in the logits and not find.

    Not all of it is refused when a request comes in, and a lookup that fails ends the engine.
    """
    stops = params.all_stop_token_ids
    stops.difference_update([token for token in stops if not 0 <= token < vocab_size])
    if params.logit_bias:
        params.logit_bias = {token: bias for token, bias in params.logit_bias.items() if 0 <= token < vocab_size}


def padded_prompts(states: Sequence[RequestState], vocab_size: int) -> torch.Tensor:
    """int64 [rows, longest prompt], as vLLM's own penalties count them; ``vocab_size`` is their padding."""
    padded = np.full((len(states), max(len(state.prompt_token_ids) for state in states)), vocab_size, dtype=np.int64)
    for row, state in enumerate(states):
        padded[row, : len(state.prompt_token_ids)] = state.prompt_token_ids
    # Placeholders beyond the vocabulary are penalised no more than padding.
    return torch.from_numpy(np.minimum(padded, vocab_size))


def _temperatures(params: Sequence[SamplingParams], greedy: Sequence[bool]) -> torch.Tensor:
    return torch.tensor([0.0 if g else p.temperature for p, g in zip(params, greedy, strict=True)])


def _column(params: Sequence[SamplingParams], value: Callable[[SamplingParams], float]) -> torch.Tensor:
    return torch.tensor([value(p) for p in params], dtype=torch.float32)


def _top_k(params: Sequence[SamplingParams], vocab_size: int, greedy_top_k: int) -> torch.Tensor | None:
    values = [
        greedy_top_k if p.sampling_type == SamplingType.GREEDY else p.top_k if 0 < p.top_k < vocab_size else vocab_size
        for p in params
    ]
    return None if all(v == vocab_size for v in values) else torch.tensor(values, dtype=torch.int32)


def _max_num_logprobs(params: Sequence[SamplingParams], vocab_size: int) -> int | None:
    """None when nobody asks; 0 asks for the chosen token's logprob alone."""
    asked = [vocab_size if p.logprobs == -1 else p.logprobs for p in params if p.logprobs is not None]
    return max(asked, default=None)


def _by_row(params: Sequence[SamplingParams], value: Callable[[SamplingParams], T | None]) -> dict[int, T]:
    return {i: found for i, p in enumerate(params) if (found := value(p))}


def _disallowed(params: Sequence[SamplingParams], vocab_size: int) -> torch.Tensor | None:
    """A bool [rows, vocab], True where a row may not go; None when no row is restricted."""
    restricted = _by_row(params, lambda p: p.allowed_token_ids)
    if not restricted:
        return None
    mask = torch.zeros(len(params), vocab_size, dtype=torch.bool)
    for row, allowed in restricted.items():
        mask[row] = True
        mask[row, [token for token in allowed if 0 <= token < vocab_size]] = False
    return mask


def _possible(sequences: Sequence[list[int]], vocab_size: int) -> list[list[int]]:
    """The sequences that can be generated at all: the sampler cannot mask a token that has no logit."""
    return [tokens for tokens in sequences if all(0 <= token < vocab_size for token in tokens)]
