"""The KV cache of one layer: pages of keys and values that page tables point into."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["PagedKV"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PagedKV:
    """Keys and values, each [pages, KV heads, page size, head size]."""

    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def allocate(cls, pages: int, kv_heads: int, page_size: int, head_size: int, dtype: torch.dtype) -> PagedKV:
        """Zeroed pages; the system backs them with memory when they are first written."""
        shape = (pages, kv_heads, page_size, head_size)
        return cls(keys=_zeros(shape, dtype), values=_zeros(shape, dtype))

    @property
    def page_size(self) -> int:
        return self.keys.shape[2]

    def write(self, cells: tuple[torch.Tensor, torch.Tensor], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store ``keys`` and ``values`` [t, KV heads, head size] at ``cells``: pages [t] and offsets in them [t]."""
        pages, offsets = cells
        self.keys[pages, :, offsets] = keys
        self.values[pages, :, offsets] = values

    def read(self, pages: torch.Tensor, out: list[torch.Tensor] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """The contents of ``pages`` [n, w], in order: keys and values [n, KV heads, w x page size, head size].

        ``out`` is an empty list at first; reads of the same shape that share it share their memory.
        """
        rows, width = pages.shape
        _, heads, size, head_size = self.keys.shape
        # Whole (page, head) blocks are picked head by head, so one copy yields the order that attention reads.
        blocks = (pages[:, None] * heads + torch.arange(heads)[:, None]).flatten()
        out = [] if out is None else out
        if not out:
            out += [self.keys.new_empty((len(blocks), size, head_size)) for _ in range(2)]
        for source, target in zip((self.keys, self.values), out, strict=True):
            torch.index_select(source.view(-1, size, head_size), 0, blocks, out=target)
        keys, values = (target.view(rows, heads, width * size, head_size) for target in out)
        return keys, values


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    # torch.zeros writes every page at once; numpy leaves that to the system.
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)
