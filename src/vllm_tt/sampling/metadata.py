"""vLLM's sampling metadata for the rows of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from vllm.sampling_params import SamplingParams, SamplingType
from vllm.v1.sample.logits_processor import BatchUpdateBuilder, LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.v1.sample.logits_processor import BatchUpdate

    from vllm_tt.batch.requests import RequestState

__all__ = ["build_metadata"]

T = TypeVar("T")


def build_metadata(
    states: Sequence[RequestState], processors: LogitsProcessors, vocab_size: int, thinking: Any = None
) -> SamplingMetadata:
    """Metadata for one row per state; ``processors`` are fresh and get the rows added here.

    ``thinking`` is vLLM's holder of the rows' thinking budgets, as fresh; None where there are none.

    Lists of generated tokens are shared with the states, so the result stays valid from step to
    step while the rows are the same.
    """
    params = [state.sampling_params for state in states]
    greedy = [p.sampling_type == SamplingType.GREEDY for p in params]
    penalties = _penalties(params)
    no_penalties = not any(column.any() for column in penalties)
    for p in params:
        _forget_impossible(p, vocab_size)
    added = _added(states)
    for processor in processors.all:
        processor.update_state(added)
    if thinking is not None:
        thinking.sync_batch(added)
    return SamplingMetadata(
        temperature=None if all(greedy) else _temperatures(params, greedy),
        all_greedy=all(greedy),
        all_random=not any(greedy),
        top_p=_column(params, lambda p: p.top_p, neutral=1.0),
        top_k=_top_k(params, vocab_size),
        generators={i: s.generator for i, s in enumerate(states) if s.generator is not None},
        max_num_logprobs=_max_num_logprobs(params, vocab_size),
        logprob_token_ids=_by_row(params, lambda p: getattr(p, "logprob_token_ids", None)) or None,
        no_penalties=no_penalties,
        prompt_token_ids=None if no_penalties else _prompts(states, vocab_size),
        frequency_penalties=penalties[0],
        presence_penalties=penalties[1],
        # The sampler wants 1 for "no penalty"; above, columns are zero when nothing is asked.
        repetition_penalties=penalties[2] + 1.0,
        output_token_ids=[state.output_token_ids for state in states],
        allowed_token_ids_mask=_disallowed(params, vocab_size),
        bad_words_token_ids=_by_row(params, lambda p: _possible(p.bad_words_token_ids or (), vocab_size)),
        logitsprocs=processors,
        **({} if thinking is None else {"thinking_budget_state_holder": thinking}),
    )


def _temperatures(params: Sequence[SamplingParams], greedy: Sequence[bool]) -> torch.Tensor:
    return torch.tensor([0.0 if g else p.temperature for p, g in zip(params, greedy, strict=True)])


def _column(
    params: Sequence[SamplingParams], value: Callable[[SamplingParams], float], neutral: float
) -> torch.Tensor | None:
    values = [value(p) for p in params]
    return None if all(v == neutral for v in values) else torch.tensor(values, dtype=torch.float32)


def _top_k(params: Sequence[SamplingParams], vocab_size: int) -> torch.Tensor | None:
    values = [p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params]
    return None if all(v == vocab_size for v in values) else torch.tensor(values, dtype=torch.int32)


def _penalties(params: Sequence[SamplingParams]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frequency, presence, and repetition less one: zero means no penalty in all three."""
    return (
        torch.tensor([p.frequency_penalty for p in params], dtype=torch.float32),
        torch.tensor([p.presence_penalty for p in params], dtype=torch.float32),
        torch.tensor([p.repetition_penalty - 1.0 for p in params], dtype=torch.float32),
    )


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


def _prompts(states: Sequence[RequestState], vocab_size: int) -> torch.Tensor:
    """int64 [rows, longest prompt]; ``vocab_size`` is vLLM's padding token."""
    padded = np.full((len(states), max(len(s.prompt_token_ids) for s in states)), vocab_size, dtype=np.int64)
    for row, state in enumerate(states):
        padded[row, : len(state.prompt_token_ids)] = state.prompt_token_ids
    # Placeholders beyond the vocabulary are penalised no more than padding.
    return torch.from_numpy(np.minimum(padded, vocab_size))


def _possible(sequences: Sequence[list[int]], vocab_size: int) -> list[list[int]]:
    """The sequences that can be generated at all: the sampler cannot mask a token that has no logit."""
    return [tokens for tokens in sequences if all(0 <= token < vocab_size for token in tokens)]


def _forget_impossible(params: SamplingParams, vocab_size: int) -> None:
    """Drop, in place, what vLLM's processors would look up in the logits and not find.

    Not all of it is refused when a request comes in, and a lookup that fails ends the engine.
    """
    stops = params.all_stop_token_ids
    stops.difference_update([token for token in stops if not 0 <= token < vocab_size])
    if params.logit_bias:
        params.logit_bias = {token: bias for token, bias in params.logit_bias.items() if 0 <= token < vocab_size}


def _added(states: Sequence[RequestState]) -> BatchUpdate | None:
    """The batch as vLLM's processors learn of it: every row is new."""
    builder = BatchUpdateBuilder()
    for row, state in enumerate(states):
        builder.added.append((row, state.sampling_params, state.prompt_token_ids, state.output_token_ids))
    return builder.get_and_reset(len(states))
