"""Which layers share page ids and buffers, by the groups that vLLM makes, and the pages that it wants for them."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from probe_config import probe_config
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)

from vllm_tt.config import LaneShape
from vllm_tt.platform.compat import kv_cache_groups
from vllm_tt.worker.kv_cache import KVPlan
from vllm_tt.worker.kv_groups import KVGroups, NoPerLayerCache, request_pages, window_pages

GUIDE = (Path(__file__).parents[3] / "docs" / "bundles.md").read_text("utf-8")
PAGES = 100
CONTEXT, WINDOW, ROWS = 32_768, 1024, 8


def full(heads=8, head=64, size=32, kind=FullAttentionSpec):
    return kind(block_size=size, num_kv_heads=heads, head_size=head, dtype=torch.bfloat16)


def sliding(window=WINDOW, heads=8, head=64, size=32, kind=SlidingWindowSpec):
    return kind(block_size=size, num_kv_heads=heads, head_size=head, dtype=torch.bfloat16, sliding_window=window)


def local(chunk=WINDOW, size=32):
    return ChunkedLocalAttentionSpec(
        block_size=size, num_kv_heads=8, head_size=64, dtype=torch.bfloat16, attention_chunk_size=chunk
    )


def five_to_one(layers=12, *, window=None, whole=None):
    """Every sixth layer with full attention, as in Gemma 3."""
    return [whole or full() if layer % 6 == 5 else window or sliding() for layer in range(layers)]


@pytest.fixture
def config(tmp_path):
    made = probe_config(tmp_path, vocab_size=64, rows=ROWS)
    made.model_config.max_model_len = CONTEXT
    made.cache_config.block_size = 32
    made.cache_config.num_gpu_blocks_override = PAGES * 1000
    made.scheduler_config.max_num_batched_tokens = 2048
    return made


@pytest.fixture
def grouped(config):
    def make(specs):
        named = {f"layer.{number}": spec for number, spec in enumerate(specs)}
        [planned] = get_kv_cache_configs(config, [named], [2**50])
        return KVGroups.of(list(named), planned)

    return make


def test_layers_of_one_kind_are_one_group_with_a_buffer_each(grouped):
    groups = grouped([full()] * 3)
    assert (len(groups), groups.main, groups.block_sizes, groups.windowed) == (1, 0, (32,), frozenset())
    assert groups.group_of_layer == (0, 0, 0)
    assert groups.shapes(PAGES, 1) == [((PAGES, 8, 32, 64), torch.bfloat16, buffer) for buffer in range(3)]
    assert groups.widths(100) == [4]


def test_five_windows_to_one_are_six_groups_over_the_buffers_of_one(grouped):
    groups = grouped(five_to_one())
    assert groups.group_of_layer == (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5)
    assert groups.buffer_of_layer == (0,) * 6 + (1,) * 6
    assert groups.windowed == {0, 1, 2, 3, 4}
    assert groups.windows == (WINDOW,) * 5 + (None,)
    assert groups.main == 5
    tables = [torch.tensor([number]) for number in range(6)]
    assert all(table is tables[layer % 6] for layer, table in enumerate(groups.per_layer(tables)))


def test_windows_alone_have_the_first_group_as_the_main_one(grouped):
    groups = grouped([sliding(64), sliding(128)])
    assert (groups.windowed, groups.main) == ({0, 1}, 0)


def test_pages_of_as_many_bytes_hold_more_tokens_of_smaller_heads(grouped):
    groups = grouped(five_to_one(window=sliding(heads=8), whole=full(heads=4)))
    assert groups.block_sizes == (32,) * 5 + (64,)
    assert groups.widths(100) == [4] * 5 + [2]
    assert groups.shapes(PAGES, 2)[:6] == [
        *[((PAGES, 4, 32, 64), torch.bfloat16, 0)] * 5,
        ((PAGES, 2, 64, 64), torch.bfloat16, 0),
    ]


def test_latent_attention_has_one_head_on_every_chip(grouped):
    groups = grouped([full(heads=1, head=576, kind=MLAAttentionSpec)] * 2)
    assert groups.shapes(PAGES, 8) == [((PAGES, 1, 32, 576), torch.bfloat16, buffer) for buffer in (0, 1)]
    assert not groups.windowed


@pytest.mark.parametrize(
    ("specs", "windowed"),
    [([full(8), full(4)], frozenset()), ([sliding(heads=8), sliding(heads=4)], {0})],
    ids=["full", "windows"],
)
def test_layers_with_different_heads_are_one_group_of_several_shapes(grouped, specs, windowed):
    groups = grouped(specs)
    assert (len(groups), groups.windowed) == (1, windowed)
    assert groups.shapes(PAGES, 1) == [
        ((PAGES, 8, 32, 64), torch.bfloat16, 0),
        ((PAGES, 4, 32, 64), torch.bfloat16, 1),
    ]


def test_layers_whose_pages_differ_in_bytes_share_no_buffer(grouped):
    latent = [full(heads=1, head=head, kind=MLAAttentionSpec) for head in (512, 128)]
    windows = [
        sliding(heads=1, head=128, kind=SlidingWindowMLASpec),
        sliding(heads=1, head=512, kind=SlidingWindowMLASpec),
    ]
    groups = grouped([*latent, *windows])
    assert groups.group_of_layer == (0, 0, 1, 1)
    sizes = {}
    for (shape, _, buffer), spec in zip(groups.shapes(PAGES, 1), groups.specs, strict=True):
        assert sizes.setdefault(buffer, spec.page_size_bytes) == spec.page_size_bytes, shape


class Uniform:
    def allocate_kv_cache(self, shape, dtype, layers):
        return shape, dtype, layers


@pytest.mark.parametrize(("specs", "count"), [(five_to_one(), 6), ([full(8), full(4)], 1)], ids=["groups", "shapes"])
def test_an_adapter_with_one_shape_of_cache_is_refused_for_layers_that_differ(grouped, specs, count):
    with pytest.raises(NoPerLayerCache) as caught:
        grouped(specs).allocate(Uniform(), PAGES, 1)
    assert str(caught.value) == (
        f"Uniform has {count} KV cache groups (layers with different caches) and allocate_kv_cache() makes one cache "
        "of one shape. Define allocate_kv_cache_per_layer(specs), or return one kind of spec from get_kv_cache_spec()."
    )


def test_an_adapter_gets_one_shape_or_one_for_each_layer(grouped):
    per_layer = SimpleNamespace(allocate_kv_cache_per_layer=lambda specs: specs)
    assert grouped([full()] * 2).allocate(Uniform(), PAGES, 4) == ((PAGES, 2, 32, 64), torch.bfloat16, 2)
    assert grouped([full()] * 2).allocate(per_layer, PAGES, 4) == [
        ((PAGES, 2, 32, 64), torch.bfloat16, buffer) for buffer in (0, 1)
    ]


@pytest.mark.parametrize(
    ("specs", "pages"),
    [
        ([full()], [0]),
        ([full(heads=8), full(heads=4)], [0]),
        ([sliding(64)], [2 * 3 + 4]),
        ([sliding(65)], [2 * 4 + 4]),
        ([sliding(64, heads=8), sliding(64, heads=4)], [2 * 3 + 4]),
        ([local(96)], [2 * 4 + 4]),
        ([sliding(64), full(heads=4)], [2 * 3 + 4, 0]),
    ],
    ids=["full", "full, heads", "window", "a token more", "window, heads", "chunks", "both"],
)
def test_windows_take_the_pages_they_touch_for_each_row_and_those_in_flight(config, specs, pages):
    groups = kv_cache_groups(config, {f"layer.{n}": spec for n, spec in enumerate(specs)})
    assert [window_pages(group, 2, 128) for group in groups] == pages


def plan(config, specs, *, override=None, tokens=ROWS * CONTEXT):
    config.cache_config.num_gpu_blocks_override = override

    class Model:
        get_max_tokens_all_users = staticmethod(lambda **_: tokens)
        get_kv_cache_spec = staticmethod(lambda _: {f"layer.{n}": spec for n, spec in enumerate(specs)})

    return KVPlan.make(Model, config, LaneShape(lanes=1, per_lane=ROWS), chips=1)


def held(config, specs, made):
    """The number of buffers, and their bytes with the plan's pages."""
    [planned] = get_kv_cache_configs(config, [{f"layer.{n}": spec for n, spec in enumerate(specs)}], [2**50])
    groups = KVGroups.of([f"layer.{n}" for n in range(len(specs))], planned)
    buffers = dict(zip(groups.buffer_of_layer, groups.specs, strict=True))
    return len(buffers), made.pages * sum(spec.page_size_bytes for spec in buffers.values())


def test_windows_save_what_the_guide_says(config):
    whole, windows = [full()] * 30, five_to_one(30)
    plans = {
        name: plan(config, specs) for name, specs in {"every layer full": whole, "windows declared": windows}.items()
    }
    config.cache_config.num_gpu_blocks_override = PAGES * 1000
    for (name, made), specs in zip(plans.items(), (whole, windows), strict=True):
        buffers, size = held(config, specs, made)
        assert f"| {name} | {made.pages:,} | {buffers} | {size // 2**20:,} MiB |" in GUIDE


def test_the_example_of_the_guide_declares_five_windows_to_one(config):
    (example,) = re.findall(r"```py\n(.*?)```", GUIDE, re.DOTALL)
    names = {}
    exec(compile(example, "docs/bundles.md", "exec"), names)
    text = {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": WINDOW, "num_hidden_layers": 30}
    config.model_config.hf_text_config = SimpleNamespace(**text)
    config.model_config.dtype = torch.bfloat16
    specs = type("Model", (), {"get_kv_cache_spec": names["get_kv_cache_spec"]}).get_kv_cache_spec(config)
    assert list(specs.values()) == five_to_one(30)
    assert [len(group.layer_names) for group in kv_cache_groups(config, specs)] == [5] * 6


def test_the_headroom_of_a_group_is_in_its_own_pages(config):
    specs = five_to_one(window=sliding(), whole=full(heads=4))
    made = plan(config, specs, tokens=64_000)
    assert made.pages == 64_000 // 64 + ROWS + 5 * (ROWS * 33 + 128)
    assert made.max_tokens == 64_000


def test_windows_take_no_more_than_a_cache_of_every_token(config):
    assert plan(config, five_to_one(), tokens=640).pages == 6 * (640 // 32 + ROWS)


@pytest.mark.parametrize(
    ("specs", "override", "tokens"),
    [
        ([full()], 11, 320),
        ([full(heads=8), full(heads=4)], 11, 320),
        (five_to_one(), 1 + 5 * 11 + 10, 320),
        (five_to_one(), 1 + 5 * 161 + 1024, CONTEXT),
        (five_to_one(window=sliding(64, heads=8), whole=full(heads=4)), 1 + 5 * 131 + 100, 6400),
        ([full(), sliding(64), sliding(128)], 40, 384),
        ([sliding(64)], 132, 2**28),
        ([sliding(64)], 131, 4128),
    ],
    ids=["full", "full, heads", "short", "long", "unequal", "two windows", "windows alone", "windows alone, short"],
)
def test_an_override_serves_the_longest_request_that_vllm_can_begin(config, specs, override, tokens):
    made = plan(config, specs, override=override)
    groups = kv_cache_groups(config, {f"layer.{n}": spec for n, spec in enumerate(specs)})
    assert request_pages(groups, config, made.max_tokens) < override
    assert request_pages(groups, config, made.max_tokens + 1) >= override or made.max_tokens == 2**28
    assert (made.pages, made.max_tokens) == (override, tokens)
