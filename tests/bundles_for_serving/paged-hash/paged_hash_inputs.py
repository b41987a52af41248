"""A decode call as the device takes it: what it loads from the host, and what it goes on with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from paged_hash_checks import check_decode_inputs, require, torch_int32

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from paged_hash_parameters import Row
    from paged_hash_sampler import History

    Ints = npt.NDArray[np.int64]

__all__ = ["Commands", "DecodeCall", "Resident", "check_row_list", "histories"]


@dataclass(frozen=True, slots=True)
class Commands:
    """What a call loads."""

    inputs: bool
    page_table: bool
    parameters: bool
    state: bool

    @classmethod
    def of(cls, sent: Mapping[str, Any], *, explicit: bool, sampled: bool) -> Commands:
        """From the four explicit commands, or from ``reset_batch``, which is all of them."""
        names = ["reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state"]
        expected = names if explicit else ["reset_batch"] * sampled
        fine = sorted(sent) == sorted(expected) and all(type(value) is bool for value in sent.values())
        require(fine, "decode takes the commands {expected}, got {sent}", expected=expected, sent=dict(sent))
        if not explicit:
            everything = sent.get("reset_batch", True)
            return cls(everything, False, everything and sampled, everything and sampled)
        made = cls(*(sent[name] for name in names))
        require(not (made.inputs and made.page_table), "reload_page_table with reload_inputs")
        require(made.parameters or not made.state, "reset_sampling_state without reload_sampling_params")
        require(sampled or not made.parameters, "reload_sampling_params without sampling_params")
        return made


@dataclass(frozen=True, slots=True)
class DecodeCall:
    """One decode, copied when it is submitted: the host may write over its tensors afterwards."""

    commands: Commands
    tokens: Ints
    positions: Ints
    page_table: Ints
    parameters: list[Row] | None
    """None when tokens are sampled on the host."""
    histories: list[History] | None
    logits_rows: list[int] | None

    def check(self) -> None:
        if self.commands.inputs:
            check_decode_inputs(self.tokens, self.page_table, self.positions)


class Resident:
    """Tokens [B], positions [B] and page table [B, w] on the device."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._tokens: Ints | None = None
        self._positions = np.full(slots, -1, np.int64)
        self._page_table: Ints | None = None

    def load(self, call: DecodeCall) -> tuple[Ints, Ints, Ints]:
        """What this call computes with."""
        if call.commands.inputs:
            self._tokens, self._positions, self._page_table = call.tokens, call.positions, call.page_table
        if call.commands.page_table:
            fine = not call.page_table[self._positions < 0].any()
            require(fine, "pages in idle slots")
            self._page_table = call.page_table
        require(self._tokens is not None, "a decode goes on from tokens that the device does not have")
        assert self._tokens is not None
        assert self._page_table is not None
        return self._tokens, self._positions, self._page_table

    def advance(self, tokens: Ints | None) -> None:
        """Go one position further with the sampled ``tokens`` [B]; None when the host samples them."""
        self._tokens = tokens
        self._positions = self._positions + (self._positions >= 0)


def check_row_list(rows: Any, count: int) -> None:
    """``logits_rows`` of a call of ``count`` rows."""
    fine = type(rows) is list and all(type(row) is int and 0 <= row < count for row in rows)
    require(fine and len(set(rows)) == len(rows), "logits_rows of {count} rows: {rows!r}", count=count, rows=rows)


def histories(prompts: Any, outputs: Any, slots: int) -> list[History] | None:
    """``prompt_tokens`` and ``output_tokens`` without their padding."""
    require((prompts is None) == (outputs is None), "one of prompt_tokens and output_tokens")
    if prompts is None:
        return None
    unpadded = []
    for name, tokens in (("prompt_tokens", prompts), ("output_tokens", outputs)):
        torch_int32(name, tokens, (slots, tokens.shape[-1]))
        rows = [[token for token in row if token != -1] for row in tokens.tolist()]
        for slot, row in enumerate(rows):
            padded = bool((tokens[slot, len(row) :] == -1).all())
            require(padded, "{name} of slot {slot} are padded in front or between", name=name, slot=slot)
        unpadded.append(rows)
    return list(zip(*unpadded, strict=True))
