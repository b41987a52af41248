"""The rows that the device computes: how long each is, its pages in the store, and whose these are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from paged_hash import choose
from paged_hash_checks import check_pages, require
from paged_hash_states import States
from paged_hash_store import JUNK, PagedStore

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["Rows"]


class Rows:
    """One row a slot, in lanes that follow one another in the store."""

    def __init__(self, store: PagedStore, slots: int, lanes: int, *, chunked: bool, caching: bool, spare: int) -> None:
        self.store = store
        self._chunked, self._caching, self._spare = chunked, caching, spare
        self._states = None if caching else States(slots)
        """A state cannot be taken from the pages of others."""
        self._lanes, self._lane_of = lanes, np.arange(slots) // (slots // lanes)
        self._pages = len(store.tokens) // lanes
        self.ends = np.zeros(slots, np.int64)
        self.marks = np.full(slots, -1, np.int64)
        """One for each admission, on the pages that it writes."""
        self._first_own = np.zeros(slots, np.int64)
        """The first page of each row that it wrote itself."""
        self._tables: list[list[int]] = [[] for _ in range(slots)]
        self._next_mark = 0

    def prefill(self, slot: int, page_table: Ints, tokens: Ints, start: int) -> None:
        """Compute ``tokens[start:]`` of a row that begins, or goes on with its next chunk."""
        self._admit(slot, page_table, tokens[:start])
        self.store.prefill(page_table, tokens[start:], start, int(self.marks[slot]))
        self.ends[slot] = len(tokens)
        if self._states is not None:
            self._states.prefill(slot, tokens[start:], start)

    def decode(self, slots: Ints, tables: Ints, tokens: Ints, positions: Ints) -> None:
        """Write the last token of each row."""
        wrong = positions != self.ends[slots]
        require(
            not wrong.any(),
            "slots {slots} decode positions {got}, their rows are {ends} long",
            slots=slots[wrong].tolist(),
            got=positions[wrong].tolist(),
            ends=self.ends[slots[wrong]].tolist(),
        )
        self._check_owners(slots, tables, positions)
        self.store.decode(tables, tokens, positions, self.marks[slots])
        self.ends[slots] += 1
        for slot, table in zip(slots.tolist(), tables, strict=True):
            self._tables[slot] = table.tolist()

    def run_on(self, slots: Ints, tokens: Ints, positions: Ints) -> None:
        """What is computed in ``slots`` changes their state, also where it is written to the null page."""
        if self._states is not None:
            self._states.decode(slots, tokens, positions)

    def idle(self, slots: Ints) -> None:
        """An idle slot's write lands in its lane's null page."""
        self.store.tokens[self._lane_of[slots] * self._pages, 0] = JUNK

    def tables(self, page_table: Ints, slots: Ints, starts: Ints, ends: Ints) -> Ints:
        """The rows' pages in the store; checked lane by lane."""
        for lane in range(self._lanes):
            rows = self._lane_of[slots] == lane
            check_pages(
                page_table[rows],
                starts[rows],
                ends[rows],
                self.store.page_size,
                self._pages,
                shared=self._caching,
                spare=self._spare,
            )
        return page_table + (self._lane_of[slots] * self._pages)[:, None]

    def next_tokens(self, slots: Ints, tables: Ints, vocab_size: int, eos_every: int) -> Ints:
        """What the model chooses, with every row read back; its own pages must carry its mark."""
        ends = self.ends[slots]
        columns = np.arange(tables.shape[1])
        own = (columns >= self._first_own[slots][:, None]) & (columns < -(-ends // self.store.page_size)[:, None])
        self._refuse_foreign(slots, tables, own)
        hashes = self.store.hashes(tables, ends)
        if self._states is not None:
            hashes += self._states.off(slots, self.store.fingerprint_at(tables, ends))
        return choose(hashes, ends, vocab_size, eos_every)

    def _wrote(self, slot: int, pages: Ints) -> bool:
        """Whether a row's own ones of its ``pages`` are as it left them.

        A preempted row may find its pages in the prefix cache, under the same ids but filled again by another.
        """
        return bool((self.store.owners[pages[self._first_own[slot] :]] == self.marks[slot]).all())

    def _check_owners(self, slots: Ints, tables: Ints, positions: Ints) -> None:
        """A row goes on writing in a page only if it wrote there before."""
        column = positions // self.store.page_size
        begun = np.arange(tables.shape[1]) == column[:, None]
        begun[positions % self.store.page_size == 0] = False
        self._refuse_foreign(slots, tables, begun)

    def _refuse_foreign(self, slots: Ints, tables: Ints, columns: npt.NDArray[np.bool_]) -> None:
        foreign = columns & (self.store.owners[tables] != self.marks[slots][:, None])
        require(
            not foreign.any(),
            "pages {pages} of slots {slots} were written by others",
            pages=tables[foreign].tolist(),
            slots=slots[foreign.any(axis=1)].tolist(),
        )

    def _admit(self, slot: int, table: Ints, before: Ints) -> None:
        start, size = len(before), self.store.page_size
        held = -(-start // size)
        known = self._tables[slot][:held] == table[:held].tolist() and self._wrote(slot, table[:held])
        if not (start and self._chunked and self.ends[slot] == start and known):
            cached = self._caching and start % size == 0
            require(not start or cached, "slot {slot} starts at {start}, after nothing", slot=slot, start=start)
            self.marks[slot], self._next_mark = self._next_mark, self._next_mark + 1
            self._first_own[slot] = start // size
        self._tables[slot] = table.tolist()
        found = self.store.read(table, start)
        wrong = np.flatnonzero(found != before)
        require(
            not wrong.size,
            "slot {slot} goes on after {start} tokens; position {at} holds {found}, not {token}",
            slot=slot,
            start=start,
            at=wrong[:1],
            found=found[wrong[:1]],
            token=before[wrong[:1]],
        )
