"""What a device keeps from one decode to the next, and what a decode replaces of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vllm_tt.host.row_params import RowParams
from vllm_tt.host.sampler import Computed, HostDeviceSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.contract import DeviceSamplingParams
    from vllm_tt.host.sampler import Sampled

__all__ = ["DecodeInputs", "Resident", "Update"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Update:
    """What one decode loads; None leaves what is there. Nobody else holds its tensors."""

    tokens: torch.Tensor | None
    positions: torch.Tensor | None
    rope_deltas: torch.Tensor | None
    page_table: torch.Tensor | None
    page_tables_per_layer: list[torch.Tensor] | None
    params: tuple[RowParams, ...] | None
    reset: bool
    prompt_tokens: torch.Tensor | None
    output_tokens: torch.Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodeInputs:
    """Arguments of `Adapter.decode_forward` by their names there; without commands everything is loaded."""

    tokens: torch.Tensor
    page_table: torch.Tensor
    start_pos: torch.Tensor
    page_tables_per_layer: Sequence[torch.Tensor] | None = None
    rope_deltas_all_users: Sequence[int | None] | None = None
    sampling_params: DeviceSamplingParams | None = None
    logits_rows: Sequence[int] | None = None
    prompt_tokens: torch.Tensor | None = None
    output_tokens: torch.Tensor | None = None
    reload_inputs: bool = True
    reload_page_table: bool = True
    reload_sampling_params: bool = True
    reset_sampling_state: bool = True

    def update(self) -> Update:
        """Copies of what is to be loaded: the caller may use its own again."""
        params = self.sampling_params if self.reload_sampling_params else None
        reset = self.reset_sampling_state and self.sampling_params is not None
        tables = [self.page_table, *(self.page_tables_per_layer or ())]
        page_table, *per_layer = _copies(tables) if self.reload_inputs or self.reload_page_table else [None]
        return Update(
            tokens=self.tokens.clone() if self.reload_inputs else None,
            positions=self.start_pos.clone() if self.reload_inputs else None,
            rope_deltas=self._rope_deltas() if self.reload_inputs else None,
            page_table=page_table,
            page_tables_per_layer=per_layer or None,
            params=RowParams.of(params) if params is not None else None,
            reset=reset,
            prompt_tokens=_copy(self.prompt_tokens) if reset else None,
            output_tokens=_copy(self.output_tokens) if reset else None,
        )

    def _rope_deltas(self) -> torch.Tensor:
        return torch.tensor([delta or 0 for delta in self.rope_deltas_all_users or [0] * len(self.tokens)])


class Resident:
    """Every slot's next token, position and pages, and the sampler's state."""

    def __init__(self, sampler: HostDeviceSampler) -> None:
        self.tokens = torch.zeros((0, 1), dtype=torch.int32)
        """[B, 1]"""
        self.positions = torch.zeros(0, dtype=torch.int32)
        """[B]; -1 for an idle slot."""
        self.rope_deltas = torch.zeros(0, dtype=torch.int64)
        """[B], what rotary positions are beyond positions; 0 in models where they are the same."""
        self.page_table = torch.zeros((0, 0), dtype=torch.int32)
        """[B, W]"""
        self.page_tables_per_layer: list[torch.Tensor] | None = None
        """Those of the layers, which share tensors as they were sent; None where all have the one above."""
        self.live: list[int] = []
        """The slots that are not idle."""
        self._sampler = sampler

    def load(self, update: Update) -> None:
        """Take up what a decode brings."""
        if update.tokens is not None and update.positions is not None:
            self.tokens, self.positions = update.tokens, update.positions
            self.live = (self.positions >= 0).nonzero().flatten().tolist()
        if update.rope_deltas is not None:
            self.rope_deltas = update.rope_deltas
        if update.page_table is not None:
            self.page_table, self.page_tables_per_layer = update.page_table, update.page_tables_per_layer
        if update.params is not None:
            self._sampler.load(update.params)
        if update.reset:
            self._sampler.reset(update.prompt_tokens, update.output_tokens)

    def sample(self, logits: torch.Tensor, logits_rows: Sequence[int] | None) -> Sampled:
        """Sample from the live slots' ``logits`` [t, V]; the tokens are the next step's, one position further."""
        positions = self.positions + (self.positions >= 0).int()
        computed = Computed(rows=self.live, logits=logits, positions=positions[self.live].tolist())
        sampled = self._sampler.sample(computed, logits_rows)
        self.tokens, self.positions = sampled.tokens[:, None], positions
        return sampled


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that are shared as ``tensors`` are."""
    copies = {key: tensor.clone() for key, tensor in {id(tensor): tensor for tensor in tensors}.items()}
    return [copies[id(tensor)] for tensor in tensors]
