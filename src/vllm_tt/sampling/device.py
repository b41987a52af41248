"""What a device-sampled call is sent beside its inputs, and what its results mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_tt.batch.requests import in_32_bits
from vllm_tt.batch.sampling_rows import NO_LOGPROBS, Control
from vllm_tt.contract import DeviceSamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from vllm_tt.batch.requests import RequestState
    from vllm_tt.batch.sampling_rows import SamplingRows

__all__ = ["DeviceSampling", "Histories", "device_params"]

_NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Histories:
    """The tokens that penalties count, by slot: torch int32 [B, longest], padded with -1."""

    prompt_tokens: torch.Tensor
    output_tokens: torch.Tensor

    @classmethod
    def of(cls, holders: Sequence[RequestState | None]) -> Histories:
        """The histories of the slots' requests; empty where there is none."""
        return cls(
            prompt_tokens=_padded([state.prompt_token_ids if state else () for state in holders]),
            output_tokens=_padded([state.output_token_ids if state else () for state in holders]),
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DeviceSampling:
    """The sampling arguments of one call."""

    params: DeviceSamplingParams
    logits_rows: tuple[int, ...] = ()
    """Rows of the call (slots, in a decode) whose logits come back for the host to sample."""
    histories: Histories | None = None

    def keywords(self) -> dict[str, Any]:
        """As the adapter's methods take them."""
        words: dict[str, Any] = {"sampling_params": self.params}
        if self.logits_rows:
            words["logits_rows"] = list(self.logits_rows)
        if self.histories is not None:
            words["prompt_tokens"] = self.histories.prompt_tokens
            words["output_tokens"] = self.histories.output_tokens
        return words

    @property
    def wants_logprobs(self) -> bool:
        return any(self.params.enable_log_probs)


def device_params(
    rows: SamplingRows, size: int, index: npt.NDArray[np.integer[Any]], slots: npt.NDArray[np.integer[Any]]
) -> DeviceSamplingParams:
    """For a call of ``size`` rows: row ``index[i]`` samples for slot ``slots[i]``; the others are neutral."""

    def column(values: npt.NDArray[Any], neutral: Any) -> list[Any]:
        out = np.full(size, neutral, dtype=values.dtype)
        out[index] = values[slots]
        return out.tolist()

    seeds: list[int | None] = [None] * size
    for row, slot in zip(index.tolist(), slots.tolist(), strict=True):
        if rows.controls[slot] & Control.SEED.value:
            seeds[row] = in_32_bits(int(rows.seed[slot]))
    counts = rows.num_logprobs.copy()
    # The likeliest token is the chosen one, whose logprob a device gives that gives no others.
    counts[(counts == 1) & rows.takes_likeliest(np.arange(len(counts)))] = 0
    num_logprobs = column(counts, NO_LOGPROBS)
    return DeviceSamplingParams(
        temperature=column(rows.temperature, 0.0),
        top_k=column(rows.top_k, 1),
        top_p=column(rows.top_p, 1.0),
        presence_penalty=column(rows.presence_penalty, 0.0),
        frequency_penalty=column(rows.frequency_penalty, 0.0),
        repetition_penalty=column(rows.repetition_penalty, 1.0),
        seed=seeds,
        enable_log_probs=[count != NO_LOGPROBS for count in num_logprobs],
        num_logprobs=[max(count, 0) for count in num_logprobs],
    )


def _padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    out = np.full((len(rows), max(1, *map(len, rows))), _NO_TOKEN, dtype=np.int32)
    for row, tokens in enumerate(rows):
        out[row, : len(tokens)] = tokens
    return torch.from_numpy(out)
