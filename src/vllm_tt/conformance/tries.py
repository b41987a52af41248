"""Every kind of call once, for its shapes and arguments alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_tt.conformance.rig import Chunk, Token
from vllm_tt.conformance.sampled import Ask, params_of

if TYPE_CHECKING:
    from vllm_tt.conformance.rig import Rig

__all__ = ["Tries"]


class Tries:
    """One or two rows of about a page, in the first slots."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._rows = min(2, rig.sizes.slots)

    def prefill(self) -> str:
        found = self._rig.prefill(self._chunks())
        return f"{self._rows} prompts of {self._rig.sizes.page_size} tokens and more give {list(found.shape)}"

    def decode(self, *, split: bool = False) -> str:
        self._rig.prefill(self._chunks())
        found = self._rig.decode(self._tokens(0), split=split)
        return f"{self._rows} rows and {self._rig.sizes.slots - self._rows} idle slots give {list(found.shape)}"

    def sample(self) -> str:
        """Rows that take the likeliest token, then rows that ask for all that is declared."""
        split = self._rig.capabilities.supports_async_decode
        for asked in ({}, self._all_that_is_declared()):
            self._rig.sample_prefill(self._chunks(), self._ask(self._rows, asked))
            ask = self._ask(self._rig.sizes.slots, asked)
            self._rig.sample(self._tokens(0), ask, split=split)
            self._rig.sample(self._tokens(1), ask, split=split, goes_on=self._rig.can_go_on(self._tokens(1)))
        return "tokens after a prefill, a decode, and one that goes on from it; with " + (
            ", ".join(asked) or "nothing beside"
        )

    def lanes(self) -> str:
        """A row in each lane with the same page ids in all, then decodes of all lanes and of the last alone."""
        sizes = self._rig.sizes
        at, pages = sizes.page_size, [1, 2]
        slots = [lane * sizes.slots_per_lane for lane in range(sizes.lanes)]
        self._rig.prefill([Chunk(slot=i, tokens=[1] * at, start=0, end=at, pages=pages) for i in slots])
        for step, served in enumerate((slots, slots[-1:])):
            found = self._rig.decode([Token(slot=i, token=1, position=at + step, pages=pages) for i in served])
        return (
            f"{sizes.lanes} lanes of {sizes.slots_per_lane} slots, and all but one lane empty, give {list(found.shape)}"
        )

    def _ask(self, size: int, asked: dict[str, Any]) -> Ask:
        histories = {0: [1]} if "presence_penalty" in asked else {}
        more = self._rows > 1 and self._rig.capabilities.supports_row_logits and bool(asked)
        return Ask(
            params=params_of(size, {0: asked}), logits_rows=[1] if more else [], prompts=histories, outputs=histories
        )

    def _all_that_is_declared(self) -> dict[str, Any]:
        """Parameters of a row."""
        declared, vocab = self._rig.capabilities, self._rig.sizes.vocab_size
        asked: dict[str, Any] = {}
        if declared.max_device_top_k != 1:
            asked |= {"temperature": 1.0, "top_k": min(declared.max_device_top_k or vocab, vocab), "top_p": 0.9}
        if declared.supports_device_seeds:
            asked["seed"] = 1
        if declared.supports_device_penalties:
            asked |= {"presence_penalty": 1.0, "frequency_penalty": 1.0, "repetition_penalty": 1.1}
        if declared.max_device_logprobs is not None:
            asked |= {"enable_log_probs": True, "num_logprobs": declared.max_device_logprobs}
        return asked

    def _chunks(self) -> list[Chunk]:
        size = self._rig.sizes.page_size
        return [
            Chunk(slot=i, tokens=[1] * (size + 1), start=0, end=size + i, pages=[2 * i + 1, 2 * i + 2])
            for i in range(self._rows)
        ]

    def _tokens(self, step: int) -> list[Token]:
        at = self._rig.sizes.page_size + step
        return [Token(slot=i, token=1, position=at + i, pages=[2 * i + 1, 2 * i + 2]) for i in range(self._rows)]
