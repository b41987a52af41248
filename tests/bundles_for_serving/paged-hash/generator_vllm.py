"""The paged-hash model behind the adapter contract; every call that breaks the contract raises.

Environment: PAGED_HASH_CAPABILITIES names the capabilities that are on (comma separated),
PAGED_HASH_MAX_TOKENS sizes the cache, PAGED_HASH_PAD_TO makes prefill also write a padded tail,
PAGED_HASH_SPARE_PAGES allows pages past those that a row needs, PAGED_HASH_POISON is a token that
prefill fails on.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from paged_hash import choose
from paged_hash_checks import check_decode_call, check_pages, check_prefill_call, require
from paged_hash_store import JUNK, PagedStore


def _setting(name: str, default: int) -> int:
    return int(os.environ.get(f"PAGED_HASH_{name}", default))


class PagedHashForCausalLM:
    model_capabilities = dict.fromkeys(filter(None, os.environ.get("PAGED_HASH_CAPABILITIES", "").split(",")), True)

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        return _setting("MAX_TOKENS", 131_072)

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int,
        optimizations: str | None,
    ) -> PagedHashForCausalLM:
        return cls(hf_config, max_batch_size, tt_data_parallel)

    def __init__(self, hf_config: Any, slots: int, lanes: int) -> None:
        self.vocab_size: int = hf_config.vocab_size
        self.eos_every: int = getattr(hf_config, "eos_every", 0)
        self.chosen_logit: float = getattr(hf_config, "chosen_logit", 100.0)
        self.chunked = self.model_capabilities.get("supports_chunked_prefill", False)
        self.caching = self.model_capabilities.get("supports_prefix_caching", False)
        self.pad_to, self.spare = _setting("PAD_TO", 0), _setting("SPARE_PAGES", 0)
        self.poison = _setting("POISON", -1)
        self.lanes, self.lane_of = lanes, np.arange(slots) // (slots // lanes)
        self.store: PagedStore | None = None
        self.width = 0
        # What each slot's request has: its length, its mark on pages, its first page that it wrote itself.
        self.ends = np.zeros(slots, np.int64)
        self.marks = np.full(slots, -1, np.int64)
        self.first_own = np.zeros(slots, np.int64)
        self.tables: list[list[int]] = [[] for _ in range(slots)]
        self.next_mark = 0

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: torch.dtype, num_layers: int) -> PagedStore:
        require(self.store is None, "a second KV cache")
        require(len(shape) == 4 and isinstance(dtype, torch.dtype) and num_layers > 0, "KV cache {shape}", shape=shape)
        pages, _, page_size, _ = shape
        self.pages = pages
        self.store = PagedStore.allocate(pages * self.lanes, page_size)
        return self.store

    def warmup_model_prefill(self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool) -> None:
        require(kv_cache is self.store, "a KV cache of somebody else")

    def warmup_model_decode(
        self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool, max_batch_size: int, num_blocks: int
    ) -> None:
        require(kv_cache is self.store, "a KV cache of somebody else")
        require(max_batch_size == len(self.ends), "warm-up of {got} slots", got=max_batch_size)
        self.width = num_blocks

    def prefill_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: PagedStore,
        enable_trace: bool,
        prompt_lens: np.ndarray,
        start_pos: np.ndarray,
        empty_slots: list[int],
    ) -> torch.Tensor:
        check_prefill_call(tokens, page_table, prompt_lens, start_pos, empty_slots, len(self.ends))
        tables = self._tables(page_table, np.array(empty_slots), start_pos, prompt_lens, kv_cache)
        for i, slot in enumerate(empty_slots):
            row = tokens[i, : prompt_lens[i]].numpy().astype(np.int64)
            require(self.poison not in row, "token {token} is poison", token=self.poison)
            self._admit(slot, tables[i], row[: start_pos[i]], kv_cache)
            kv_cache.prefill(tables[i], row[start_pos[i] :], int(start_pos[i]), int(self.marks[slot]))
            self.ends[slot] = prompt_lens[i]
            if self.pad_to:
                padded = -(-int(prompt_lens[i]) // self.pad_to) * self.pad_to
                kv_cache.spoil(tables[i], np.arange(prompt_lens[i], padded))
        return self._logits(np.array(empty_slots), tables, len(empty_slots), np.arange(len(empty_slots)))

    def decode_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: PagedStore,
        start_pos: torch.Tensor,
        enable_trace: bool,
        read_from_device: bool,
    ) -> torch.Tensor:
        check_decode_call(tokens, page_table, start_pos, len(self.ends))
        positions = start_pos.numpy().astype(np.int64)
        live = np.flatnonzero(positions >= 0)
        positions = positions[live]
        wrong = live[positions != self.ends[live]]
        require(
            not wrong.size,
            "slots {slots} decode positions {got}, their rows are {ends} long",
            slots=wrong.tolist(),
            got=start_pos.numpy()[wrong].tolist(),
            ends=self.ends[wrong].tolist(),
        )
        tables = self._tables(page_table[torch.from_numpy(live)], live, positions, positions + 1, kv_cache)
        kv_cache.decode(tables, tokens.numpy().astype(np.int64)[live, 0], positions, self.marks[live])
        # An idle slot's write lands in its lane's null page.
        idle = np.setdiff1d(np.arange(len(self.ends)), live)
        kv_cache.tokens[page_table.numpy()[idle, 0] + self.lane_of[idle] * self.pages, 0] = JUNK
        self.ends[live] += 1
        for slot, table in zip(live, tables, strict=True):
            self.tables[slot] = table.tolist()
        return self._logits(live, tables, len(self.ends), live)

    def _tables(
        self, page_table: torch.Tensor, slots: np.ndarray, starts: np.ndarray, ends: np.ndarray, kv_cache: Any
    ) -> np.ndarray:
        """The rows' pages in the store, where the lanes follow one another; checked lane by lane."""
        require(kv_cache is self.store, "a KV cache of somebody else")
        tables = page_table.numpy().astype(np.int64)
        self.width = self.width or tables.shape[1]
        require(tables.shape[1] == self.width, "page table of {got}, not {w}", got=tables.shape[1], w=self.width)
        for lane in range(self.lanes):
            rows = self.lane_of[slots] == lane
            check_pages(
                tables[rows],
                starts[rows],
                ends[rows],
                kv_cache.page_size,
                self.pages,
                shared=self.caching,
                spare=self.spare,
            )
        return tables + (self.lane_of[slots] * self.pages)[:, None]

    def _admit(self, slot: int, table: np.ndarray, before: np.ndarray, kv_cache: PagedStore) -> None:
        """A row begins, or goes on with its next chunk."""
        start, size = len(before), kv_cache.page_size
        held = -(-start // size)
        known = self.tables[slot][:held] == table[:held].tolist()
        if not (start and self.chunked and self.ends[slot] == start and known):
            cached = self.caching and start % size == 0
            require(not start or cached, "slot {slot} starts at {start}, after nothing", slot=slot, start=start)
            self.marks[slot], self.next_mark = self.next_mark, self.next_mark + 1
            self.first_own[slot] = start // size
        self.tables[slot] = table.tolist()
        found = kv_cache.read(table, start)
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

    def _logits(self, slots: np.ndarray, tables: np.ndarray, rows: int, index: np.ndarray) -> torch.Tensor:
        """Read every row back; its own pages must carry its mark."""
        store, ends = self.store, self.ends[slots]
        assert store is not None
        columns = np.arange(tables.shape[1])
        own = (columns >= self.first_own[slots][:, None]) & (columns < -(-ends // store.page_size)[:, None])
        foreign = own & (store.owners[tables] != self.marks[slots][:, None])
        require(
            not foreign.any(),
            "pages {pages} of slots {slots} were written by others",
            pages=tables[foreign].tolist(),
            slots=slots[foreign.any(axis=1)].tolist(),
        )
        chosen = choose(store.hashes(tables, ends), ends, self.vocab_size, self.eos_every)
        logits = torch.zeros((rows, 1, self.vocab_size))
        logits[torch.from_numpy(index), 0, torch.from_numpy(chosen)] = self.chosen_logit
        return logits
