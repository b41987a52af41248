"""Looks into a KV cache, where it is made of host tensors: which pages changed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PageWatch"]


class PageWatch:
    """The contents of every page at one moment."""

    def __init__(self, kv_cache: Any, pages: int, page_of: Callable[[int], int] = int) -> None:
        """``pages``: of the pool; ``page_of``: the page of a request that an id in the pool is."""
        self._pages, self._page_of = pages, page_of
        self._arrays = list(_arrays(kv_cache, pages, set()))
        self._before = [array.copy() for array in self._arrays]

    @property
    def sees(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self._arrays)

    def changed(self) -> set[int]:
        """The pages whose contents are not what they were."""
        found: set[int] = set()
        for now, before in zip(self._arrays, self._before, strict=True):
            differs = (now != before).reshape(self._pages, -1).any(axis=1)
            found.update(map(self._page_of, np.flatnonzero(differs).tolist()))
        return found


def _arrays(value: Any, pages: int, seen: set[int]) -> Iterator[Any]:
    """Bytes [pages, ...] of every tensor and array in ``value`` whose first dimension is the pages."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.dim() and value.shape[0] == pages and value.device.type == "cpu" and value.is_contiguous():
            yield value.detach().view(torch.uint8).numpy()
    elif isinstance(value, np.ndarray):
        if value.ndim and value.shape[0] == pages:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item, pages, seen)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()), pages, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _arrays([getattr(value, field.name) for field in dataclasses.fields(value)], pages, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _arrays(list(vars(value).values()), pages, seen)
