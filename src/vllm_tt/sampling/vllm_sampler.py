"""vLLM's sampler, with its slow parts replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.sampler import Sampler

from vllm_tt.sampling.argmax import likeliest_tokens
from vllm_tt.sampling.candidates import likeliest
from vllm_tt.sampling.draw import Draw

if TYPE_CHECKING:
    from vllm.config import ModelConfig

    from vllm_tt.sampling.metadata import RowsMetadata

__all__ = ["QuickSampler"]

_MOST_LOGPROBS = 64
"""For more, vLLM's own way is as quick."""


class QuickSampler(Sampler):
    """Everything that a request can ask for, in vLLM's order of steps.

    Top-k, top-p and the draw are ours unless the operator asks for what only vLLM's have: logprobs of processed
    logits, or noise in double precision.
    """

    def __init__(self, model_config: ModelConfig) -> None:
        mode = model_config.logprobs_mode
        double = getattr(model_config, "use_fp64_gumbel", False)
        super().__init__(logprobs_mode=mode, **({"use_fp64_gumbel": True} if double else {}))
        self.draws = mode.startswith("raw") and not double
        """Whether the draw is ours."""
        if self.draws:
            self.topk_topp_sampler = Draw(model_config.get_vocab_size())

    @staticmethod
    def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(likeliest_tokens(logits, range(len(logits)))[0]).long()

    @staticmethod
    def apply_penalties(
        logits: torch.Tensor,
        sampling_metadata: RowsMetadata,
        output_token_ids: list[list[int]],  # noqa: ARG004 - vLLM's signature
    ) -> torch.Tensor:
        table = logits.numpy()
        for row, penalised in sampling_metadata.penalised.items():
            penalised.penalise(table[row])
        return logits

    @staticmethod
    def gather_logprobs(logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor) -> LogprobsTensors:
        """The chosen tokens' logprobs, then the likeliest's, and the chosen tokens' ranks.

        Of equal ones, the lower token's comes first.
        """
        table, chosen = logprobs.numpy(), token_ids.numpy()
        found = likeliest(table, max(1, min(num_logprobs, _MOST_LOGPROBS)))
        if num_logprobs > _MOST_LOGPROBS or not found.usable.all():
            return Sampler.gather_logprobs(logprobs, num_logprobs, token_ids)
        order = np.argsort(-found.logits, axis=1, kind="stable")[:, :num_logprobs]
        own = table[np.arange(len(table)), chosen]
        return LogprobsTensors(
            torch.from_numpy(
                np.column_stack((chosen, np.take_along_axis(found.tokens, order, axis=1))).astype(np.int32)
            ),
            torch.from_numpy(np.column_stack((own, np.take_along_axis(found.logits, order, axis=1)))),
            torch.tensor([np.count_nonzero(row >= least) for row, least in zip(table, own, strict=True)]),
        )
