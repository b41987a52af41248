"""The layered paged-hash model behind the adapter contract: several KV cache groups, sampled on the host.

Environment: PAGED_HASH_LAYERS (6), PAGED_HASH_WINDOW (48) and PAGED_HASH_MAX_TOKENS (4096) describe the model.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
import torch
from layered_hash import VOCAB_SIZE, cells, chosen, windows

LAYERS = int(os.environ.get("PAGED_HASH_LAYERS", "6"))
WINDOW = int(os.environ.get("PAGED_HASH_WINDOW", "48"))


class PagedHashLayersForCausalLM:
    model_capabilities: ClassVar = {"supports_chunked_prefill": True, "supports_prefix_caching": True}

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
        return cls()

    def allocate_kv_cache_per_layer(self, specs: list[tuple[tuple[int, ...], torch.dtype, int]]) -> list[Any]:
        """Cells [pages, page size] for each layer; layers with the same buffer share it."""
        assert len(specs) == LAYERS, f"{len(specs)} layers of KV cache"
        buffers: dict[int, Any] = {}
        for shape, _, buffer in specs:
            pages, _, page_size, _ = shape
            found = buffers.setdefault(buffer, np.zeros((pages, page_size), np.uint64))
            assert found.shape == (pages, page_size), f"buffer {buffer} of {found.shape} and of {shape}"
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
        chunks = enumerate(zip(start_pos.tolist(), prompt_lens.tolist(), strict=True))
        return _logits(
            [_step(kv_cache, tables, row, tokens[row, start:end].numpy(), start) for row, (start, end) in chunks]
        )

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
                0 if position < 0 else _step(kv_cache, tables, row, tokens[row].numpy(), position)
                for row, position in enumerate(positions)
            ]
        )


def _tables(page_table: torch.Tensor, per_layer: list[torch.Tensor]) -> list[np.ndarray]:
    assert len(per_layer) == LAYERS, f"{len(per_layer)} page tables"
    full = windows(LAYERS, WINDOW).index(None)
    assert per_layer[full] is page_table, "page_table is not that of full attention"
    return [table.numpy().astype(np.int64) for table in per_layer]


def _step(kv_cache: list[Any], tables: list[np.ndarray], row: int, tokens: np.ndarray, start: int) -> int:
    """Write the row's ``tokens`` from ``start`` on in every layer, and read back what each layer sees."""
    end = start + len(tokens)
    total = np.zeros(1, np.uint64)
    for layer, window in enumerate(windows(LAYERS, WINDOW)):
        store, pages = kv_cache[layer], tables[layer][row]
        size = store.shape[1]
        positions = np.arange(start, end)
        assert pages[positions // size].all(), f"layer {layer} of row {row} writes to the null page"
        store[pages[positions // size], positions % size] = cells(layer, tokens.astype(np.int64), positions)
        seen = np.arange(0 if window is None else max(end - window, 0), end)
        total = total + store[pages[seen // size], seen % size].sum(dtype=np.uint64)
    return chosen(total, end)


def _logits(tokens: list[int]) -> torch.Tensor:
    logits = torch.zeros(len(tokens), 1, VOCAB_SIZE)
    logits[torch.arange(len(tokens)), 0, torch.tensor(tokens)] = 100.0
    return logits
