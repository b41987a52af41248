"""KV cache groups: layers that cache alike share page ids, and layers of different groups share buffers.

A model whose layers differ (full attention here, a sliding window there) has several groups. vLLM's pool gives
each group pages of its own, so the k-th layers of all groups fit into one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheSpec

__all__ = ["KVGroups", "NoPerLayerCache", "window_pages"]


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
        place = {
            name: (group, buffer)
            for group, found in enumerate(config.kv_cache_groups)
            for buffer, name in enumerate(found.layer_names)
        }
        groups = config.kv_cache_groups
        return cls(
            specs=tuple(_spec_of(groups[place[name][0]].kv_cache_spec, name) for name in layers),
            group_of_layer=tuple(place[name][0] for name in layers),
            buffer_of_layer=tuple(place[name][1] for name in layers),
            block_sizes=tuple(group.kv_cache_spec.block_size for group in groups),
            windowed=frozenset(number for number, group in enumerate(groups) if _is_windowed(group.kv_cache_spec)),
        )

    def __len__(self) -> int:
        return len(self.block_sizes)

    @property
    def main(self) -> int:
        """The group whose page table is ``page_table``: the first with full attention, if there is one."""
        return min(set(range(len(self))) - self.windowed, default=0)

    def widths(self, max_model_len: int) -> list[int]:
        """Pages of the longest request, for each group."""
        return [-(-max_model_len // size) for size in self.block_sizes]

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
    if not _is_windowed(group.kv_cache_spec):
        return 0
    size, window = group.kv_cache_spec.block_size, group.kv_cache_spec.sliding_window
    # A window that begins and ends inside of pages touches one more than it fills.
    return rows * (-(-window // size) + 1) + -(-in_flight // size)


def _is_windowed(spec: KVCacheSpec) -> bool:
    """Whether vLLM takes back pages that no token looks at any more."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    first = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    return not isinstance(first, FullAttentionSpec)


def _spec_of(spec: KVCacheSpec, layer: str) -> Any:
    """A layer's own spec; a group of one type with different sizes keeps one for each of its layers."""
    return getattr(spec, "kv_cache_specs", {}).get(layer, spec)


def _shape(spec: Any, pages: int, chips: int) -> tuple[int, int, int, int]:
    return pages, spec.num_kv_heads // min(chips, spec.num_kv_heads), spec.block_size, spec.head_size
