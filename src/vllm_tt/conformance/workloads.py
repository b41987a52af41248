"""The cases that checks are tried on, by the sizes of the batch and of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.conformance.cases import Case, RowSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tt.conformance.rig import Sizes

__all__ = ["chunked", "prefixes", "several", "single"]


def single(*rows: tuple[int, int, int]) -> Callable[[Sizes], list[Case]]:
    """Single rows: pages, tokens beyond them, decode steps."""

    def cases(sizes: Sizes) -> list[Case]:
        made = []
        for i, (pages, more, steps) in enumerate(rows):
            slot = 0 if i % 2 == 0 else sizes.slots - 1
            made.append(Case(rows=(RowSpec(slot, max(1, pages * sizes.page_size + more)),), steps=steps))
        return made

    return cases


def chunked(sizes: Sizes) -> list[Case]:
    size = sizes.page_size
    shapes = ((2 * size + 5, size), (size + 9, max(1, size // 2 + 1)), (11, 3))
    return [Case(rows=(RowSpec(0, length),), steps=1, chunk=chunk) for length, chunk in shapes]


def several(count: int, steps: int) -> Callable[[Sizes], list[Case]]:
    """Rows of mixed lengths in slots with holes between them, with permuted pages."""

    def cases(sizes: Sizes) -> list[Case]:
        slots = _slots(sizes.slots, count)
        lengths = (sizes.page_size + 3, 5, sizes.page_size - 1, 2 * sizes.page_size)
        rows = tuple(RowSpec(slot, length) for slot, length in zip(slots, lengths, strict=False))
        return [Case(rows=rows, steps=steps, permuted=True)]

    return cases


def _slots(slots: int, count: int) -> list[int]:
    """Up to ``count`` slots out of order, the last one among them; one at least stays free where there are several."""
    spread = [slots - 1, 1, slots // 2, 0]
    return list(dict.fromkeys(slot for slot in spread if slot < slots))[: min(count, max(1, slots - 1))]


def prefixes(sizes: Sizes) -> list[Case]:
    return (
        [Case(rows=(RowSpec(0, pages * sizes.page_size + 7),), steps=1) for pages in (1, 2)] if sizes.slots > 1 else []
    )
