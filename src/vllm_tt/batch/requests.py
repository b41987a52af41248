"""What the worker knows of each live request, whether or not it holds a slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from vllm_tt.batch.images import images_of
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.output import NewRequestData

    from vllm_tt.batch.images import Image

__all__ = ["NO_SLOT", "RequestState", "UnsupportedRequest", "in_32_bits"]

NO_SLOT = -1
_DRAWS_KEPT = 4
"""More than the tokens that vLLM can discard of a request: those of the steps in flight."""


class UnsupportedRequest(TTError):
    """Request {request!r} has {found}; the Tenstorrent worker serves token-id prompts with sampling parameters."""


@dataclass(kw_only=True, slots=True, eq=False)
class RequestState:
    """One request.

    ``epoch`` changes whenever the request loses its slot: a result computed before that is not
    applied after it.
    """

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    generator: torch.Generator | None
    """Random state of a seeded request; lives through preemption."""
    images: tuple[Image, ...] = ()
    """Kept as long as the request: one that is preempted computes them again."""
    output_token_ids: list[int] = field(default_factory=list)
    slot: int = NO_SLOT
    epoch: int = 0
    _before_draws: dict[int, torch.Tensor] = field(default_factory=dict, init=False)
    """The generator's state before the last tokens were drawn, by their index."""

    @classmethod
    def new(cls, data: NewRequestData) -> RequestState:
        """The state of a request that vLLM schedules for the first time."""
        if data.prompt_token_ids is None or data.sampling_params is None:
            found = "prompt embeddings" if data.prompt_token_ids is None else "no sampling parameters"
            raise UnsupportedRequest(request=data.req_id, found=found)
        params = data.sampling_params
        return cls(
            req_id=data.req_id,
            prompt_token_ids=data.prompt_token_ids,
            sampling_params=params,
            generator=_generator(params.seed),
            images=images_of(data.req_id, data.mm_features),
        )

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def tokens(self, end: int) -> list[int]:
        """The first ``end`` tokens of prompt and output."""
        prompt = len(self.prompt_token_ids)
        if end <= prompt:
            return self.prompt_token_ids[:end]
        return self.prompt_token_ids + self.output_token_ids[: end - prompt]

    def before_draw(self) -> None:
        """Keep the random state that the next token is drawn from."""
        if self.generator is not None:
            index = len(self.output_token_ids)
            self._before_draws[index] = self.generator.get_state()
            self._before_draws.pop(index - _DRAWS_KEPT, None)

    def replay(self, all_token_ids: list[int]) -> None:
        """Take the scheduler's token history of a resumed request.

        Tokens that it lacks were discarded, and are drawn again from the same random numbers. The list object
        stays: sampling metadata refers to it.
        """
        self.output_token_ids[:] = all_token_ids[len(self.prompt_token_ids) :]
        before = self._before_draws.get(len(self.output_token_ids))
        if self.generator is not None and before is not None:
            self.generator.set_state(before)


def _generator(seed: int | None) -> torch.Generator | None:
    if seed is None:
        return None
    import torch

    generator = torch.Generator(device="cpu")
    generator.manual_seed(in_32_bits(seed))
    return generator


def in_32_bits(seed: int) -> int:
    """A generator of torch looks at no more: of wider and of negative seeds, every bit is to count."""
    if 0 <= seed < 2**32:
        return seed
    return int.from_bytes(blake2b(str(seed).encode(), digest_size=4).digest(), "little")
