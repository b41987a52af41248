"""What a host adapter makes of layers that cache differently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vllm_tt.host.adapter import HostAdapter

PAGES, PAGE, VOCAB = 9, 4, 11


class Recorder(nn.Module):
    """Keeps the steps it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.steps: list[Any] = []

    def forward(self, step: Any, kv_cache: Any) -> torch.Tensor:
        self.steps.append(step)
        return torch.zeros(len(step.last), VOCAB)


@pytest.fixture
def adapter() -> HostAdapter:
    text = SimpleNamespace(num_key_value_heads=2, num_attention_heads=4, vocab_size=VOCAB)
    return HostAdapter(Recorder(), SimpleNamespace(get_text_config=lambda: text), None, 4, 2)


def caches(adapter: HostAdapter, *buffers: int) -> Any:
    return adapter.allocate_kv_cache_per_layer([((PAGES, 1, PAGE, 8), torch.bfloat16, one) for one in buffers])


def test_layers_with_one_buffer_share_its_pages(adapter: HostAdapter) -> None:
    first, second, third = caches(adapter, 0, 1, 0)
    assert third is first
    assert second is not first
    assert first.keys.shape == second.values.shape == (2 * PAGES, 2, PAGE, 8), "of both lanes, with all KV heads"
    assert first.keys.dtype == next(adapter.model.parameters()).dtype == torch.bfloat16


def test_layers_that_cache_alike_have_buffers_of_their_own(adapter: HostAdapter) -> None:
    first, second = adapter.allocate_kv_cache((PAGES, 1, PAGE, 8), torch.float32, 2)
    assert first is not second
    assert second.keys.shape == (2 * PAGES, 2, PAGE, 8)


def table(page: int, rows: int) -> torch.Tensor:
    return torch.arange(page, page + rows * 2, dtype=torch.int32).view(rows, 2)


def test_each_layer_of_a_prefill_writes_to_its_own_pages(adapter: HostAdapter) -> None:
    kv_cache, full, windowed = caches(adapter, 0, 0, 1), table(1, 2), table(5, 2)
    adapter.prefill_forward(
        tokens=torch.arange(10, dtype=torch.int32).view(2, 5),
        page_table=full,
        page_tables_per_layer=[windowed, full, windowed],
        kv_cache=kv_cache,
        prompt_lens=np.array([5, 3]),
        start_pos=np.array([3, 2]),
        empty_slots=[1, 2],  # of one lane each
    )
    (step,) = adapter.model.steps
    layers = [step.of_layer(layer) for layer in range(3)]
    assert layers[0] is layers[2]
    assert [one.cells[0].tolist() for one in layers[:2]] == [[5, 6, PAGES + 7], [1, 2, PAGES + 3]]
    assert [one.tokens.tolist() for one in (step, *layers)] == [[3, 4, 7]] * 4


def test_a_decode_goes_on_with_the_tables_that_the_device_holds(adapter: HostAdapter) -> None:
    kv_cache, full, windowed = caches(adapter, 0, 0), table(1, 4), table(1, 4).flip(0)
    inputs = {
        "tokens": torch.arange(4, dtype=torch.int32)[:, None],
        "start_pos": torch.tensor([0, -1, 6, -1], dtype=torch.int32),
        "kv_cache": kv_cache,
        "page_table": full,
        "page_tables_per_layer": [windowed, full],
    }
    adapter.decode_forward(**inputs)
    stale = {"page_table": full * 0, "page_tables_per_layer": [full * 0, full * 0]}
    adapter.decode_forward(**inputs | stale, reload_inputs=False, reload_page_table=False)
    adapter.decode_forward(**inputs | stale, reload_inputs=False, reload_page_table=True)
    pages = [[step.of_layer(layer).cells[0].tolist() for layer in range(2)] for step in adapter.model.steps]
    assert pages == [[[7, PAGES + 4], [1, PAGES + 6]]] * 2 + [[[0, PAGES], [0, PAGES]]]


def test_with_one_table_every_layer_has_the_step_itself(adapter: HostAdapter) -> None:
    kv_cache = caches(adapter, 0, 1)
    adapter.warmup_model_decode(
        enable_trace=False, kv_cache=kv_cache, can_sample_on_device=False, max_batch_size=4, num_blocks=2
    )
    (step,) = adapter.model.steps
    assert step.of_layer(0) is step.of_layer(1) is step
