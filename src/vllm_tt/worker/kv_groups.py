"""KV cache groups: layers that cache alike share page ids, and layers of different groups share buffers.

A model whose layers differ (full attention here, a sliding window there) has several groups. vLLM's pool gives
each group pages of its own, so the k-th layers of all groups fit into one buffer.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheSpec

__all__ = ["KVGroups", "NoPerLayerCache", "request_pages", "window_pages"]


class NoPerLayerCache(ConfigError):
    """{owner} has {groups} KV cache groups (layers with different caches) and allocate_kv_cache() makes one cache
    of one shape. Define allocate_kv_cache_per_layer(specs), or return one kind of spec from get_kv_cache_spec().
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class KVGroups:
    """The groups of a model's layers."""

    specs: tuple[KVCacheSpec, ...]
    """Of each layer."""
    group_of_layer: tuple[int, ...]
    buffer_of_layer: tuple[int, ...]
    """Layers with the same buffer are of different groups."""
    block_sizes: tuple[int, ...]
    """Tokens of a page, for each group."""
    windowed: frozenset[int]
    """Groups whose layers look back over a window only."""

    @classmethod
    def of(cls, layers: Sequence[str], config: KVCacheConfig) -> KVGroups:
        """The groups that vLLM made of ``layers``, which are named in the model's order."""
        groups = config.kv_cache_groups
        place: dict[str, tuple[int, int]] = {}
        buffers: dict[tuple[int, int], int] = {}
        for number, group in enumerate(groups):
            layers_of_size: Counter[int] = Counter()
            for name in group.layer_names:
                size = _spec_of(group.kv_cache_spec, name).page_size_bytes
                # Only pages of as many bytes fit into one buffer.
                place[name] = number, buffers.setdefault((size, layers_of_size[size]), len(buffers))
                layers_of_size[size] += 1
        return cls(
            specs=tuple(_spec_of(groups[place[name][0]].kv_cache_spec, name) for name in layers),
            group_of_layer=tuple(place[name][0] for name in layers),
            buffer_of_layer=tuple(place[name][1] for name in layers),
            block_sizes=tuple(group.kv_cache_spec.block_size for group in groups),
            windowed=frozenset(
                number for number, group in enumerate(groups) if _window(group.kv_cache_spec) is not None
            ),
        )

    def __len__(self) -> int:
        return len(self.block_sizes)

    @property
    def main(self) -> int:
        """The group whose page table is ``page_table``: the first with full attention, if there is one."""
        return min(set(range(len(self))) - self.windowed, default=0)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Tokens that each group looks back over; None for full attention."""
        first = [self.specs[self.group_of_layer.index(group)] for group in range(len(self))]
        return tuple(_window(spec) for spec in first)

    def widths(self, max_model_len: int) -> list[int]:
        """Pages of the longest request, for each group."""
        return [-(-max_model_len // size) for size in self.block_sizes]

    def pages_per_row(self, max_model_len: int) -> int:
        """Pages of the longest request in ``page_table``."""
        return self.widths(max_model_len)[self.main]

    def per_layer(self, tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Each layer's page table, from those of the groups; layers of a group share a tensor."""
        return [tables[group] for group in self.group_of_layer]

    def shapes(self, pages: int, chips: int) -> list[tuple[tuple[int, int, int, int], torch.dtype, int]]:
        """Each layer's cache: (pages, KV heads of a chip, page size, head size), its dtype and its buffer."""
        return [
            (_shape(spec, pages, chips), spec.dtype, buffer)
            for spec, buffer in zip(self.specs, self.buffer_of_layer, strict=True)
        ]

    def allocate(self, adapter: Any, pages: int, chips: int) -> Any:
        """The adapter's KV cache, an object of its own that comes back in every call.

        ``chips``: those of a lane, which share its KV heads.
        """
        shapes = self.shapes(pages, chips)
        if hasattr(adapter, "allocate_kv_cache_per_layer"):
            return adapter.allocate_kv_cache_per_layer(shapes)
        if len(self) > 1 or len({(shape, dtype) for shape, dtype, _ in shapes}) > 1:
            raise NoPerLayerCache(owner=type(adapter).__name__, groups=len(self))
        shape, dtype, _ = shapes[0]
        return adapter.allocate_kv_cache(shape, dtype, len(shapes))


def window_pages(group: KVCacheGroupSpec, rows: int, in_flight: int) -> int:
    """Pages that ``rows`` requests of any length need of a windowed group; 0 for one that keeps every token.

    in_flight: tokens that steps compute before the pages behind their windows come back.
    """
    if (window := _window(group.kv_cache_spec)) is None:
        return 0
    size = group.kv_cache_spec.block_size
    # A window that begins and ends inside of pages touches one more than it fills.
    return rows * (-(-window // size) + 1) + -(-in_flight // size)


def request_pages(groups: Sequence[KVCacheGroupSpec], vllm_config: VllmConfig, tokens: int) -> int:
    """Pages of all groups that must be free for vLLM to begin a request of up to ``tokens``."""
    config = copy(vllm_config)
    config.model_config = copy(config.model_config)
    config.model_config.max_model_len = tokens
    specs = [group.kv_cache_spec for group in groups]
    return sum(-(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes) for spec in specs)


def _window(spec: Any) -> int | None:
    """Tokens after which vLLM takes back pages that no token looks at any more; None for full attention."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    # Layers of one group look back equally far.
    first = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    if isinstance(first, FullAttentionSpec):
        return None
    window: int = first.sliding_window if hasattr(first, "sliding_window") else first.attention_chunk_size
    return window


def _spec_of(spec: KVCacheSpec, layer: str) -> Any:
    """A layer's own spec; a group of one type with different sizes keeps one for each of its layers."""
    return getattr(spec, "kv_cache_specs", {}).get(layer, spec)


def _shape(spec: Any, pages: int, chips: int) -> tuple[int, int, int, int]:
    return pages, spec.num_kv_heads // min(chips, spec.num_kv_heads), spec.block_size, spec.head_size
