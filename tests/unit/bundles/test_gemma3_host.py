from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from by_transformers import greedy
from tools.tiny_models.write import make, spread
from transformers import AutoConfig
from transformers import Gemma3ForCausalLM as Reference
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 30
PROMPTS = {2: [7], 0: [(5 * i * i + 3) % 320 for i in range(61)], 3: [(11 * i * i + 8) % 320 for i in range(18)]}
"""By slot: of a token, far beyond a window of 20 tokens, and short of it until some tokens are decoded."""
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows of whole pages": {"sliding_window": 16},
    "narrow windows": {"sliding_window": 2},
    "no full attention": {"layer_types": ["sliding_attention"] * 6},
    "no windows": {"layer_types": ["full_attention"] * 6},
    "capped logits": {"final_logit_softcapping": 3.0},
    "embeddings of their own": {"tie_word_embeddings": False},
    "biases": {"attention_bias": True},
    "one key head": {"num_key_value_heads": 1},
}
PAGE, WIDTH = 8, 16


@pytest.fixture
def served(serve_checkpoint: Any, bundle_module: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """``served(**overrides)``: the adapter over a tiny checkpoint, and transformers' model of it."""

    def serve(dtype: torch.dtype = torch.float32, **overrides: Any) -> tuple[Any, Any]:
        model = make("gemma3")[0]
        if overrides:
            torch.manual_seed(9)
            model = Reference(Reference.config_class(**model.config.to_dict() | overrides)).eval()
            spread(model)
            torch.nn.init.normal_(model.model.norm.weight, mean=-1.0)
        model.to(dtype).save_pretrained(tmp_path)
        return serve_checkpoint(bundle_module("gemma3-host").Gemma3ForCausalLM, tmp_path, dtype=dtype), model

    return serve


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_greedy_tokens_and_logits_equal_transformers(name: str, served: Any) -> None:
    adapter, model = served(**CONFIGURATIONS[name])
    expected = {slot: greedy(model, tokens, COUNT) for slot, tokens in PROMPTS.items()}
    assert adapter.generate(PROMPTS, COUNT) == {slot: tokens for slot, (tokens, _) in expected.items()}
    for slot, (tokens, logits) in expected.items():
        row = adapter.decode({slot: (tokens[4], len(PROMPTS[slot]) + 4)})[slot]
        torch.testing.assert_close(row, logits[5], rtol=1e-3, atol=1e-3)


def test_in_bfloat16_the_logits_are_those_of_transformers_but_for_rounding(served: Any) -> None:
    adapter, model = served(dtype=torch.bfloat16)
    tokens = PROMPTS[0]
    found, expected = adapter.prefill((0, tokens, 0, len(tokens)))[0], greedy(model, tokens, COUNT)[1][0].float()
    assert (found - expected).norm() < 0.05 * expected.norm()


class Grouped:
    """Calls the adapter as with vLLM's groups of two layers: pages of one pool, taken back behind windows."""

    def __init__(self, adapter: Any, layer_types: list[str], window: int, pages: int) -> None:
        self.adapter = adapter
        groups: dict[str, list[int]] = {}
        self.group_of_layer, buffers = [], []
        for layer_type in layer_types:
            layers = groups.setdefault(layer_type, [])
            self.group_of_layer.append((layer_type, len(layers) // 2))
            buffers.append(len(layers) % 2)
            layers.append(len(buffers))
        self.window = window
        self.tables = {group: np.zeros((4, WIDTH), np.int32) for group in self.group_of_layer}
        self.free = list(range(1, pages))
        shape = pages, 1, PAGE, 32
        self.kv_cache = adapter.allocate_kv_cache_per_layer([(shape, torch.float32, buffer) for buffer in buffers])

    def turn_over(self, slot: int, start: int, end: int) -> None:
        """Give back what no token from ``start`` on sees, and take what those up to ``end`` are written to."""
        for (layer_type, _), table in self.tables.items():
            behind = max(start + 1 - self.window, 0) // PAGE if layer_type == "sliding_attention" else 0
            self.free += [page for page in table[slot, :behind].tolist() if page]
            table[slot, :behind] = 0
            for page in range(start // PAGE, -(-end // PAGE)):
                table[slot, page] = table[slot, page] or self.free.pop()

    def pages(self, slots: list[int]) -> dict[str, Any]:
        tables = {group: torch.from_numpy(table[slots]) for group, table in self.tables.items()}
        layers = [tables[group] for group in self.group_of_layer]
        return {"page_table": tables["full_attention", 0], "page_tables_per_layer": layers}

    def prefill(self, *rows: tuple[int, int, int]) -> list[int]:
        """Compute (slot, start, end) of the slots' prompts; each row's next token."""
        tokens = torch.zeros((len(rows), max(end for _, _, end in rows)), dtype=torch.int32)
        for i, (slot, start, end) in enumerate(rows):
            self.turn_over(slot, start, end)
            tokens[i, :end] = torch.tensor(PROMPTS[slot][:end])
        slots = [slot for slot, _, _ in rows]
        logits = self.adapter.prefill_forward(
            tokens=tokens,
            kv_cache=self.kv_cache,
            prompt_lens=np.array([end for _, _, end in rows]),
            start_pos=np.array([start for _, start, _ in rows]),
            empty_slots=slots,
            **self.pages(slots),
        )
        return logits[:, -1].argmax(-1).tolist()

    def decode(self, found: dict[int, list[int]]) -> None:
        """One token more for every slot in ``found``."""
        tokens, start_pos = torch.zeros((4, 1), dtype=torch.int32), torch.full((4,), -1, dtype=torch.int32)
        for slot, row in found.items():
            position = len(PROMPTS[slot]) + len(row) - 1
            self.turn_over(slot, position, position + 1)
            tokens[slot], start_pos[slot] = row[-1], position
        pages = self.pages(list(range(4)))
        logits = self.adapter.decode_forward(tokens=tokens, start_pos=start_pos, kv_cache=self.kv_cache, **pages)
        for slot, row in found.items():
            row.append(int(logits[slot, 0].argmax()))


@pytest.mark.parametrize("window", [20, 16])
def test_layers_read_what_is_theirs_in_shared_buffers_and_nothing_behind_windows(window: int, served: Any) -> None:
    adapter, model = served(sliding_window=window)
    pages = Grouped(adapter.adapter, model.config.layer_types, window, pages=48)  # without windows: 72
    assert len({id(cache) for cache in pages.kv_cache}) == 2
    assert len(pages.tables) == 3
    found = {2: pages.prefill((2, 0, 1), (0, 0, 22), (3, 0, 5))[:1]}
    pages.decode(found)
    pages.prefill((0, 22, 23), (3, 5, 17))
    found[3] = pages.prefill((0, 23, 50), (3, 17, 18))[1:]
    pages.decode(found)
    found[0] = pages.prefill((0, 50, 61))
    while len(found[0]) < COUNT:
        pages.decode(found)
    expected = {slot: greedy(model, tokens, COUNT)[0] for slot, tokens in PROMPTS.items()}
    assert {slot: row[:COUNT] for slot, row in found.items()} == expected


@pytest.mark.parametrize("window", [20, None])
def test_the_layers_say_what_they_cache(window: int | None, bundle_module: Any) -> None:
    config = make("gemma3")[0].config
    config.sliding_window = window
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=config, dtype=torch.bfloat16),
        cache_config=SimpleNamespace(block_size=16),
    )
    cache = {"block_size": 16, "num_kv_heads": 2, "head_size": 32, "dtype": torch.bfloat16}
    full = FullAttentionSpec(**cache)
    windowed = SlidingWindowSpec(**cache, sliding_window=20) if window else full
    specs = bundle_module("gemma3-host").Gemma3ForCausalLM.get_kv_cache_spec(vllm_config)
    assert specs == {
        f"model.layers.{i}.self_attn": spec
        for i, spec in enumerate([windowed, windowed, full, windowed, windowed, full])
    }


@pytest.mark.parametrize(("name", "value"), [("use_bidirectional_attention", True), ("attn_logit_softcapping", 50.0)])
def test_what_is_not_computed_is_refused(name: str, value: Any, bundle_module: Any) -> None:
    module = bundle_module("gemma3-host")
    config = AutoConfig.for_model("gemma3_text", **{name: value})
    message = f"The checkpoint's configuration has {name} = {value}, which this bundle does not compute."
    with pytest.raises(module.UnsupportedGemma, match=f"^{re.escape(message)}$"):
        module.Gemma3ForCausalLM.build_model(config)
