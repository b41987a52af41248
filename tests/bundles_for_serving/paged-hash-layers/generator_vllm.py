"""The layered paged-hash model behind the adapter contract: several KV cache groups, sampled on the host.

Environment: PAGED_HASH_LAYERS (6), PAGED_HASH_WINDOW (50) and PAGED_HASH_MAX_TOKENS (4096) describe the model.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
import torch
from layered_hash import VOCAB_SIZE, cells, chosen, windows

LAYERS = int(os.environ.get("PAGED_HASH_LAYERS", "6"))
WINDOW = int(os.environ.get("PAGED_HASH_WINDOW", "50"))


class PagedHashLayersForCausalLM:
    model_capabilities: ClassVar = {
        "supports_chunked_prefill": True,
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_lanes": True,
    }

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        return int(os.environ.get("PAGED_HASH_MAX_TOKENS", "4096"))

    @classmethod
    def get_kv_cache_spec(cls, vllm_config: Any) -> dict[str, Any]:
        from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

        size = {"block_size": vllm_config.cache_config.block_size, "num_kv_heads": 2, "head_size": 8}
        return {
            f"model.layers.{layer}.self_attn": FullAttentionSpec(**size, dtype=torch.bfloat16)
            if window is None
            else SlidingWindowSpec(**size, dtype=torch.bfloat16, sliding_window=window)
            for layer, window in enumerate(windows(LAYERS, WINDOW))
        }

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
    ) -> PagedHashLayersForCausalLM:
        return cls(max_batch_size // tt_data_parallel, tt_data_parallel)

    def __init__(self, slots_per_lane: int, lanes: int) -> None:
        self.slots_per_lane, self.lanes = slots_per_lane, lanes

    def allocate_kv_cache_per_layer(self, specs: list[tuple[tuple[int, ...], torch.dtype, int]]) -> list[Any]:
        """Cells [lanes, pages, page size] for each layer; layers with the same buffer share it."""
        assert len(specs) == LAYERS, f"{len(specs)} layers of KV cache"
        buffers: dict[int, Any] = {}
        for shape, _, buffer in specs:
            pages, _, page_size, _ = shape
            found = buffers.setdefault(buffer, np.zeros((self.lanes, pages, page_size), np.uint64))
            assert found.shape == (self.lanes, pages, page_size), f"buffer {buffer} of {found.shape} and of {shape}"
        return [buffers[buffer] for _, _, buffer in specs]

    def warmup_model_prefill(self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool) -> None:
        pass

    def warmup_model_decode(
        self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool, max_batch_size: int, num_blocks: int
    ) -> None:
        pass

    def prefill_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list[Any],
        enable_trace: bool,
        prompt_lens: np.ndarray,
        start_pos: np.ndarray,
        empty_slots: list[int],
        page_tables_per_layer: list[torch.Tensor],
    ) -> torch.Tensor:
        tables = _tables(page_table, page_tables_per_layer)
        answers = []
        for row, (slot, start, end) in enumerate(
            zip(empty_slots, start_pos.tolist(), prompt_lens.tolist(), strict=True)
        ):
            views = self._views(kv_cache, tables, slot, row)
            _check_window(views, tokens[row, :start].numpy())
            answers.append(_step(views, tokens[row, start:end].numpy(), start))
        return _logits(answers)

    def decode_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list[Any],
        start_pos: torch.Tensor,
        enable_trace: bool,
        read_from_device: bool,
        page_tables_per_layer: list[torch.Tensor],
        **commands: bool,
    ) -> torch.Tensor:
        tables = _tables(page_table, page_tables_per_layer)
        positions = start_pos.tolist()
        return _logits(
            [
                0 if position < 0 else _step(self._views(kv_cache, tables, slot, slot), tokens[slot].numpy(), position)
                for slot, position in enumerate(positions)
            ]
        )

    def _views(self, kv_cache: list[Any], tables: list[np.ndarray], slot: int, row: int) -> list[Any]:
        """Each layer's cells of the slot's lane, with the row's pages."""
        lane = slot // self.slots_per_lane
        return [(store[lane], table[row]) for store, table in zip(kv_cache, tables, strict=True)]


def _tables(page_table: torch.Tensor, per_layer: list[torch.Tensor]) -> list[np.ndarray]:
    assert len(per_layer) == LAYERS, f"{len(per_layer)} page tables"
    full = windows(LAYERS, WINDOW).index(None)
    assert per_layer[full] is page_table, "page_table is not that of full attention"
    return [table.numpy().astype(np.int64) for table in per_layer]


def _check_window(views: list[Any], before: np.ndarray) -> None:
    """The first token of a chunk must see the window ``before`` it too, not only the last, which is hashed."""
    for layer, window in enumerate(windows(LAYERS, WINDOW)):
        seen = np.arange(0 if window is None else max(len(before) + 1 - window, 0), len(before))
        found = _read(*views[layer], seen)
        assert (found == cells(layer, before[seen].astype(np.int64), seen)).all(), f"layer {layer} lost what it saw"


def _step(views: list[Any], tokens: np.ndarray, start: int) -> int:
    """Write the row's ``tokens`` from ``start`` on in every layer, and read back what each layer sees."""
    end = start + len(tokens)
    total = np.zeros(1, np.uint64)
    for layer, window in enumerate(windows(LAYERS, WINDOW)):
        store, pages = views[layer]
        size = store.shape[1]
        positions = np.arange(start, end)
        assert pages[positions // size].all(), f"layer {layer} writes to the null page"
        store[pages[positions // size], positions % size] = cells(layer, tokens.astype(np.int64), positions)
        seen = np.arange(0 if window is None else max(end - window, 0), end)
        total = total + _read(store, pages, seen).sum(dtype=np.uint64)
    return chosen(total, end)


def _read(store: np.ndarray, pages: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return store[pages[positions // store.shape[1]], positions % store.shape[1]]


def _logits(tokens: list[int]) -> torch.Tensor:
    logits = torch.zeros(len(tokens), 1, VOCAB_SIZE)
    logits[torch.arange(len(tokens)), 0, torch.tensor(tokens)] = 100.0
    return logits
