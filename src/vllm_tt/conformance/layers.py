"""The KV cache groups of an adapter's layers, and page tables for them, as a server would make both."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_tt.worker.kv_cache import layer_specs
from vllm_tt.worker.kv_groups import KVGroups

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pool", "Span", "groups_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """What one row of a call computes."""

    index: int
    """Of the row in the page table."""
    pages: Sequence[int]
    """The request's, from its first token on."""
    start: int
    end: int


def groups_of(adapter_class: type, config: Any, *, dtype: torch.dtype, block_size: int) -> KVGroups | None:
    """The groups of what ``adapter_class`` says its layers cache; None for one that leaves it to the server.

    Raises what ``get_kv_cache_spec`` raises.
    """
    if not hasattr(adapter_class, "get_kv_cache_spec"):
        return None
    told = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=config, hf_text_config=config.get_text_config(), dtype=dtype),
        cache_config=SimpleNamespace(block_size=block_size, cache_dtype="auto"),
    )
    if adapter_class.get_kv_cache_spec(told) is None:
        return None
    specs = layer_specs(adapter_class, told)
    alike: dict[Any, list[str]] = {}
    for layer, spec in specs.items():
        alike.setdefault(spec, []).append(layer)
    # Groups have as many layers each, as vLLM makes them where it can: then every buffer is shared.
    most = min(map(len, alike.values()))
    groups = [
        SimpleNamespace(layer_names=layers[first : first + most], kv_cache_spec=spec)
        for spec, layers in alike.items()
        for first in range(0, len(layers), most)
    ]
    return KVGroups.of(list(specs), SimpleNamespace(kv_cache_groups=groups))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """The pages of all groups. A request's n-th page is one of each group, whose ids in the pool never meet."""

    page_size: int
    max_seq_len: int
    groups: KVGroups | None = None
    """None for layers that all keep every token in the same pages."""

    @property
    def several(self) -> bool:
        """Whether there is more than one group."""
        return self.groups is not None and len(self.groups) > 1

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Tokens that each group looks back over; None for full attention."""
        return (None,) if self.groups is None else self.groups.windows

    def size(self, pages: int) -> int:
        """Pages of the pool, the null page among them, where a request has its pick of ``pages``."""
        return (pages - 1) * len(self.windows) + 1

    def page_of(self, page: int) -> int:
        """Which page of a request the id in the pool is."""
        return (page - 1) // len(self.windows) + 1 if page else 0

    def tables(self, rows: Sequence[Span], count: int, behind: int | None) -> tuple[torch.Tensor, ...]:
        """A table of ``count`` rows for each group: each row's pages as far as it is long, the null page after them.

        ``behind``: the page that stands where no token of the step looks any more; None leaves the row's own there.
        """
        sizes = (self.page_size,) if self.groups is None else self.groups.block_sizes
        made = []
        for group, (size, window) in enumerate(zip(sizes, self.windows, strict=True)):
            table = np.zeros((count, -(-self.max_seq_len // size)), dtype=np.int32)
            for row in rows:
                held = -(-row.end // size)
                table[row.index, :held] = [self._id(page, group) for page in row.pages[:held]]
                if window is not None and behind is not None:
                    unseen = max(row.start + 1 - window, 0) // size
                    table[row.index, :unseen] = self._id(behind, group)
            made.append(torch.from_numpy(table))
        return tuple(made)

    def per_call(self, tables: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        """The arguments that ``tables`` are sent in: each layer's too, where there are several groups."""
        if self.groups is None or not self.several:
            return {"page_table": tables[0]}
        return {"page_table": tables[self.groups.main], "page_tables_per_layer": self.groups.per_layer(tables)}

    def _id(self, page: int, group: int) -> int:
        return (page - 1) * len(self.windows) + group + 1 if page else 0
