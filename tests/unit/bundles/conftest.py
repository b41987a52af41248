"""Drives an adapter as the worker does: slots, shuffled pages, whole-table calls."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from oracle import BUNDLES, write_checkpoint

from vllm_tt.models.loader import load_class

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


class Served:
    """An adapter with its KV cache, and the page tables of its slots."""

    def __init__(self, adapter: Any, *, slots: int, pages: int, page_size: int, width: int, lanes: int = 1) -> None:
        self.adapter = adapter
        self.page_size = page_size
        self.width = width
        self.tables = np.zeros((slots, width), dtype=np.int32)
        self.rows_per_lane = slots // lanes
        shuffled = np.random.default_rng(7).permutation(np.arange(1, pages))
        self.free = [shuffled.tolist() for _ in range(lanes)]
        self.kv_cache: Any = None

    def allocate(self, pages: int, kv_heads: int, head_size: int, dtype: torch.dtype, layers: int) -> None:
        self.kv_cache = self.adapter.allocate_kv_cache((pages, kv_heads, self.page_size, head_size), dtype, layers)

    def grow(self, slot: int, length: int) -> None:
        """Give the slot pages for ``length`` tokens."""
        for page in range(-(-length // self.page_size)):
            if not self.tables[slot, page]:
                self.tables[slot, page] = self.free[slot // self.rows_per_lane].pop()

    def prefill(self, *rows: tuple[int, list[int], int, int]) -> torch.Tensor:
        """Compute (slot, tokens, start, end) rows; the logits [n, V] of each row's last token."""
        tokens = np.zeros((len(rows), max(row[3] for row in rows)), dtype=np.int32)
        for i, (slot, row, _, end) in enumerate(rows):
            self.grow(slot, end)
            tokens[i, :end] = row[:end]
        slots = [row[0] for row in rows]
        return self.adapter.prefill_forward(
            tokens=torch.from_numpy(tokens),
            page_table=torch.from_numpy(self.tables[slots]),
            kv_cache=self.kv_cache,
            enable_trace=False,
            prompt_lens=np.array([row[3] for row in rows], dtype=np.int64),
            start_pos=np.array([row[2] for row in rows], dtype=np.int64),
            empty_slots=slots,
        )[:, -1]

    def decode(self, rows: dict[int, tuple[int, int]]) -> torch.Tensor:
        """Compute slot -> (token, position); the logits [B, V] of every slot."""
        slots = len(self.tables)
        tokens, start_pos = np.zeros((slots, 1), dtype=np.int32), np.full(slots, -1, dtype=np.int32)
        table = np.zeros_like(self.tables)
        for slot, (token, position) in rows.items():
            self.grow(slot, position + 1)
            tokens[slot], start_pos[slot], table[slot] = token, position, self.tables[slot]
        return self.adapter.decode_forward(
            tokens=torch.from_numpy(tokens),
            page_table=torch.from_numpy(table),
            kv_cache=self.kv_cache,
            start_pos=torch.from_numpy(start_pos),
            enable_trace=False,
            read_from_device=True,
        )[:, -1]

    def generate(self, prompts: dict[int, list[int]], count: int) -> dict[int, list[int]]:
        """Greedy tokens of every slot's prompt: one prefill, then decoding together."""
        logits = self.prefill(*[(slot, prompt, 0, len(prompt)) for slot, prompt in prompts.items()])
        out = {slot: [token] for slot, token in zip(prompts, logits.argmax(-1).tolist(), strict=True)}
        for _ in range(count - 1):
            chosen = self.decode({s: (out[s][-1], len(prompts[s]) + len(out[s]) - 1) for s in prompts}).argmax(-1)
            for slot in prompts:
                out[slot].append(int(chosen[slot]))
        return out


def load_adapter(folder: Path) -> Any:
    """The module of a bundle's adapter, from its own file."""
    spec = importlib.util.spec_from_file_location(f"bundle_{folder.name}", folder / "generator_vllm.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def served() -> type[Served]:
    return Served


@pytest.fixture(scope="session")
def llama_host() -> Any:
    return load_adapter(ROOT / "bundles" / "llama-host")


@pytest.fixture(scope="session")
def bundle_module() -> Callable[[str], Any]:
    """The module of a shipped bundle, by the bundle's name."""
    return functools.cache(lambda name: load_adapter(ROOT / "bundles" / name))


@pytest.fixture(scope="session")
def served_llama(llama_host: Any, serve_checkpoint: Any) -> Any:
    """``serve(folder, slots=..., ...)``: a Llama checkpoint behind the adapter, ready for calls."""
    return functools.partial(serve_checkpoint, llama_host.LlamaForCausalLM)


@pytest.fixture(scope="session")
def serve_checkpoint() -> Any:
    """``serve(adapter class, folder, slots=..., ...)``: a checkpoint whose layers cache alike, ready for calls."""

    def serve(
        adapter_class: Any,
        folder: Path,
        *,
        slots: int = 4,
        page_size: int = 8,
        width: int = 16,
        pages: int = 65,
        dtype: torch.dtype = torch.float32,
        lanes: int = 1,
    ) -> Served:
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder)
        adapter = adapter_class.initialize_vllm_model(
            config,
            None,
            slots,
            max_seq_len=page_size * width,
            tt_data_parallel=lanes,
            optimizations=None,
        )
        served = Served(adapter, slots=slots, pages=pages, page_size=page_size, width=width, lanes=lanes)
        text = config.get_text_config()
        head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        served.allocate(pages, 1, head_size, dtype, text.num_hidden_layers)
        return served

    return serve


@pytest.fixture(scope="session")
def oracle_class() -> Any:
    return load_class("generator_vllm:PagedHashForCausalLM", BUNDLES / "paged-hash", "the oracle")


@pytest.fixture
def serve(oracle_class: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Served]:
    """``serve(capabilities, slots=..., ...)``: the oracle with a KV cache, ready for calls; capitals set its
    environment.
    """

    def make(
        capabilities: dict[str, Any] | None = None,
        *,
        slots: int = 6,
        lanes: int = 1,
        page_size: int = 8,
        width: int = 16,
        pages: int = 200,
        contract: int | None = None,
        model: dict[str, Any] | None = None,
        **environ: str,
    ) -> Served:
        from transformers import AutoConfig

        for name, value in environ.items():
            monkeypatch.setenv(f"PAGED_HASH_{name}", value)
        attributes = {"model_capabilities": capabilities or {}, "decode_input_update_contract": contract}
        variant = type("Variant", (oracle_class,), attributes)
        adapter = variant.initialize_vllm_model(
            AutoConfig.from_pretrained(write_checkpoint(tmp_path / "model", **model or {})),
            None,
            slots,
            max_seq_len=page_size * width,
            tt_data_parallel=lanes,
            optimizations=None,
        )
        made = Served(adapter, slots=slots, pages=pages, page_size=page_size, width=width, lanes=lanes)
        made.allocate(pages, 2, 8, torch.bfloat16, 1)
        return made

    return make
