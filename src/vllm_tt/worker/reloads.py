"""What the device goes on with from step to step, and what it must be told to load again (design decision D4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from vllm_tt.batch.rows import Rows
    from vllm_tt.sampling.policy import Where
    from vllm_tt.scheduler.plan import StepPlan

__all__ = ["Reload", "Resident"]

_IDLE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reload:
    """The commands of one decode, by the names of the contract."""

    inputs: bool
    """Tokens, positions and page table: the host must know every row's last token."""
    page_table: bool = False
    """The page table alone."""
    sampling: bool = False
    """Parameters and state of the device's sampler."""

    def keywords(self) -> dict[str, bool]:
        return {
            "reload_inputs": self.inputs,
            "reload_page_table": self.page_table,
            "reload_sampling_params": self.sampling,
            "reset_sampling_state": self.sampling,
        }


class Resident:
    """The tokens and positions that the device holds after the steps submitted to it.

    A row that ends need not be taken out: with null pages it goes on unread, until the next reload. One that only
    pauses must be: the device may hold state of its slot beside the pages, which is not to change meanwhile.
    """

    def __init__(self, rows: Rows, *, capacity: int, explicit: bool) -> None:
        """``capacity``: positions that a row of the page table covers; ``explicit``: the adapter takes the commands,
        otherwise it reloads everything or nothing.
        """
        self._rows = rows
        self._capacity = capacity
        self._explicit = explicit
        self._serial: npt.NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        """Whose next token the device has in each slot: that binding's serial, 0 for nobody's."""
        self._position: npt.NDArray[np.int32] = np.full(len(rows), _IDLE, dtype=np.int32)
        """Where the device writes next in each slot."""
        self._page_tables: tuple[torch.Tensor, ...] | None = None

    def reload(self, plan: StepPlan, page_tables: tuple[torch.Tensor, ...]) -> Reload:
        """What a device-sampled decode of ``plan`` must load."""
        slots = plan.slots
        same = (self._serial[slots] == self._rows.serial[slots]).all() and (self._position[slots] == plan.starts).all()
        moved = page_tables is not self._page_tables
        # A row that is left out gets null pages.
        changed = moved and (not self._explicit or self._pauses_a_row(slots))
        if not same or changed or self._position.max() >= self._capacity:
            return Reload(inputs=True, sampling=True)
        return Reload(inputs=False, page_table=moved)

    def submitted(self, plan: StepPlan, page_tables: tuple[torch.Tensor, ...], where: Where, reload: Reload) -> None:
        """A device-sampled decode was submitted: the device has the next tokens of the rows that it sampled."""
        slots = plan.slots
        if reload.inputs:
            self._position[:] = _IDLE
            self._position[slots] = plan.starts
        self._serial[:] = 0
        self._serial[slots] = self._rows.serial[slots]
        self._serial[slots[list(where.host_rows)]] = 0
        self._position[self._position != _IDLE] += 1
        self._page_tables = page_tables

    def _pauses_a_row(self, slots: npt.NDArray[np.int32]) -> bool:
        """Whether a step of ``slots`` leaves out a row that the device has, and that decodes again later."""
        left_out = self._position != _IDLE
        left_out[slots] = False
        return any(self._goes_on(slot) for slot in np.flatnonzero(left_out).tolist())

    def _goes_on(self, slot: int) -> bool:
        """Whether the request in ``slot``, if there is one, may have tokens after those that were asked for."""
        holder = self._rows.holders[slot]
        if holder is None:
            return False
        most = holder.sampling_params.max_tokens
        return most is None or int(self._position[slot]) + 1 < len(holder.prompt_token_ids) + most

    def forget(self) -> None:
        """Another kind of step ran: nothing that the device holds is relied on."""
        self._serial[:] = 0
        self._page_tables = None
