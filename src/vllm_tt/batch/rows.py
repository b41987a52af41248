"""One row for each device slot: its request, last token and pages.

Rows never move. Page-table entries past a row's own pages are always the null page (D5), so a
padded or stale write can only ever hit page 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vllm_tt.batch.requests import NO_SLOT, RequestState
from vllm_tt.batch.sampling_rows import SamplingRows
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt
    from vllm.v1.core.sched.output import CachedRequestData

    from vllm_tt.scheduler.plan import TTSchedulerOutput

__all__ = ["NULL_PAGE", "PageTable", "Rows", "RowsBroken", "SlotTaken"]

NULL_PAGE = 0


class SlotTaken(TTError):
    """Slot {slot} was given to request {request!r} while request {holder!r} still has it."""


class RowsBroken(TTError):
    """The worker's rows do not add up: {fault}."""


class PageTable:
    """The page ids of every row in one KV cache group: int32 [rows, pages of the longest request]."""

    def __init__(self, rows: int, width: int, *, windowed: bool = False) -> None:
        """``windowed``: pages that no token looks back to any more may be null."""
        self.windowed = windowed
        self.ids: npt.NDArray[np.int32] = np.full((rows, width), NULL_PAGE, dtype=np.int32)
        self.used: npt.NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.changed: npt.NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        """Rows that changed since whoever copies them last looked; that one resets it."""

    def clear(self, row: int) -> None:
        self.ids[row, : self.used[row]] = NULL_PAGE
        self.used[row] = 0
        self.changed[row] = True

    def append(self, row: int, pages: Sequence[int]) -> None:
        start = int(self.used[row])
        self.ids[row, start : start + len(pages)] = pages
        self.used[row] = start + len(pages)
        self.changed[row] = True


class Rows:
    """The live requests and the rows they hold."""

    def __init__(self, rows: int, widths: Sequence[int], vocab_size: int, *, windowed: Collection[int] = ()) -> None:
        """``widths``: pages of the longest request, for each KV cache group; ``windowed``: those that slide."""
        self.requests: dict[str, RequestState] = {}
        self.holders: list[RequestState | None] = [None] * rows
        self.last_token: npt.NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.serial: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """Which binding of a request to the slot this is, never the same twice; 0 for a free slot."""
        self.rope_deltas: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """What a prefill said of its rows, for models with request-specific rotary state."""
        self.sampling = SamplingRows(rows, vocab_size)
        self.page_tables = tuple(
            PageTable(rows, width, windowed=group in windowed) for group, width in enumerate(widths)
        )
        self.version = 0
        """Counts the bindings and releases of requests and slots."""

    def __len__(self) -> int:
        """The number of rows, held or not."""
        return len(self.holders)

    def apply(self, output: TTSchedulerOutput) -> None:
        """Bring requests and rows up to the scheduler's step."""
        plan = output.plan
        for slot in plan.released:
            self._release(slot)
        for req_id in output.finished_req_ids:
            self.requests.pop(req_id, None)
        slot_of = dict(zip(plan.req_ids, plan.slots.tolist(), strict=True))
        for new in output.scheduled_new_reqs:
            if (state := self.requests.get(new.req_id)) is None:
                state = self.requests[new.req_id] = RequestState.new(new)
            if new.prefill_token_ids:
                state.replay(new.prefill_token_ids)
            self._bind(state, slot_of[new.req_id], new.block_ids)
        self._apply_cached(output.scheduled_cached_reqs, slot_of)

    def held(self) -> dict[str, int]:
        """How many requests are known, and how many rows and pages they hold."""
        return {
            "requests": len(self.requests),
            "rows": sum(holder is not None for holder in self.holders),
            "pages": sum(int(table.used.sum()) for table in self.page_tables),
        }

    def check(self) -> None:
        """Raise unless each request has at most one row, each row one request, and free rows are null."""
        held = {state.req_id: slot for slot, state in enumerate(self.holders) if state is not None}
        claimed = {state.req_id: state.slot for state in self.requests.values() if state.slot != NO_SLOT}
        if held != claimed:
            raise RowsBroken(fault=f"rows say {held}, requests say {claimed}")
        columns = [np.arange(table.ids.shape[1]) for table in self.page_tables]
        for table, column in zip(self.page_tables, columns, strict=True):
            past_own = column[None, :] >= table.used[:, None]
            if table.ids[past_own].any():
                raise RowsBroken(fault="a page table has pages past a row's own")
            if not table.windowed and (table.ids[~past_own] == NULL_PAGE).any():
                raise RowsBroken(fault="a row owns the null page")
            free = [slot for slot, state in enumerate(self.holders) if state is None]
            if table.used[free].any():
                raise RowsBroken(fault="a free row has pages")

    def _apply_cached(self, cached: CachedRequestData, slot_of: dict[str, int]) -> None:
        for req_id, pages in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if req_id in cached.resumed_req_ids:
                state = self.requests[req_id]
                state.replay(cached.all_token_ids[req_id])
                self._bind(state, slot_of[req_id], pages or ())
            elif pages is not None:
                slot = self.requests[req_id].slot
                for table, ids in zip(self.page_tables, pages, strict=True):
                    table.append(slot, ids)

    def _bind(self, state: RequestState, slot: int, pages: Sequence[Sequence[int]]) -> None:
        if (holder := self.holders[slot]) is not None:
            raise SlotTaken(slot=slot, request=state.req_id, holder=holder.req_id)
        state.slot = slot
        self.holders[slot] = state
        self.version += 1
        self.serial[slot] = self.version
        self.sampling.bind(slot, state.sampling_params, len(state.prompt_token_ids))
        for table, ids in zip(self.page_tables, pages, strict=True):
            table.append(slot, ids)

    def _release(self, slot: int) -> None:
        if (state := self.holders[slot]) is not None:
            state.slot = NO_SLOT
            state.epoch += 1
            self.holders[slot] = None
        self.version += 1
        self.serial[slot] = self.rope_deltas[slot] = 0
        self.sampling.clear(slot)
        for table in self.page_tables:
            table.clear(slot)
