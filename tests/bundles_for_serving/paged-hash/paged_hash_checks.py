"""What must hold in every call of the contract; the first thing that does not is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = [
    "ContractViolation",
    "check_decode_inputs",
    "check_decode_shapes",
    "check_pages",
    "check_prefill_call",
    "require",
    "torch_int32",
]


class ContractViolation(AssertionError):
    """A call that no adapter should get."""


def require(holds: object, text: str, **facts: object) -> None:
    if not holds:
        raise ContractViolation(text.format(**facts))


def check_prefill_call(
    tokens: Any, page_table: Any, prompt_lens: Any, start_pos: Any, empty_slots: Any, slots: int
) -> None:
    """Types, shapes and ranges of ``prefill_forward``."""
    n = len(prompt_lens)
    torch_int32("tokens", tokens, (n, int(max(prompt_lens))))
    torch_int32("page_table", page_table, (n, page_table.shape[-1]))
    for name, array in (("prompt_lens", prompt_lens), ("start_pos", start_pos)):
        fine = isinstance(array, np.ndarray) and array.dtype == np.int64 and array.shape == (n,)
        require(fine, "{name} must be numpy int64 [{n}], got {array!r}", name=name, n=n, array=array)
    fine = isinstance(empty_slots, list) and all(type(slot) is int for slot in empty_slots)
    require(fine and len(empty_slots) == n, "empty_slots must be {n} ints, got {got!r}", n=n, got=empty_slots)
    require(len(set(empty_slots)) == n, "two rows in one slot: {got}", got=empty_slots)
    require(all(0 <= slot < slots for slot in empty_slots), "slots {got} of {slots}", got=empty_slots, slots=slots)
    for i, (start, end) in enumerate(zip(start_pos.tolist(), prompt_lens.tolist(), strict=True)):
        require(0 <= start < end, "row {i} computes {start} to {end}", i=i, start=start, end=end)
        require(not tokens[i, end:].any(), "row {i} has tokens after its end {end}", i=i, end=end)


def check_decode_shapes(tokens: Any, page_table: Any, start_pos: Any, slots: int) -> None:
    """Types and shapes of ``decode_forward``, whether or not the device loads the values."""
    torch_int32("tokens", tokens, (slots, 1))
    torch_int32("page_table", page_table, (slots, page_table.shape[-1]))
    torch_int32("start_pos", start_pos, (slots,))


def check_decode_inputs(tokens: Ints, page_table: Ints, start_pos: Ints) -> None:
    """Values that the device loads; idle slots are -1, token 0, null pages."""
    require((start_pos >= -1).all(), "positions below -1: {got}", got=start_pos.tolist())
    idle = start_pos < 0
    require(not idle.all(), "a decode step without a row")
    require(not tokens[idle].any(), "tokens in idle slots")
    require(not page_table[idle].any(), "pages in idle slots")


def check_pages(
    tables: Ints, starts: Ints, ends: Ints, page_size: int, pages: int, *, shared: bool, spare: int
) -> None:
    """Rows [r] that write positions ``starts`` to ``ends`` through ``tables`` [r, w].

    ``shared``: pages before the first written one may be other rows' too.
    """
    require(
        ((tables >= 0) & (tables < pages)).all(),
        "page ids beyond {pages}: {got}",
        pages=pages,
        got=tables.max(initial=0),
    )
    needed = -(-ends // page_size)
    require((needed <= tables.shape[1]).all(), "rows longer than the page table: {ends}", ends=ends)
    columns = np.arange(tables.shape[1])
    own = columns < needed[:, None]
    require((tables[own] != 0).all(), "a row's page is the null page")
    past = columns >= needed[:, None] + spare
    require(not tables[past].any(), "pages past a row's own: {got}", got=tables[past & (tables != 0)].tolist())
    written = own & (columns >= (starts // page_size)[:, None])
    for what, chosen in (("written", written), ("held", own)):
        if what == "held" and shared:
            _distinct_in_rows(tables, own)
            continue
        found, counts = np.unique(tables[chosen], return_counts=True)
        require((counts == 1).all(), "pages {what} twice in a step: {got}", what=what, got=found[counts > 1].tolist())


def torch_int32(name: str, value: Any, shape: tuple[int, ...]) -> None:
    fine = isinstance(value, torch.Tensor) and value.dtype == torch.int32 and tuple(value.shape) == shape
    found = f"{getattr(value, 'dtype', type(value).__name__)} {list(getattr(value, 'shape', []))}"
    require(fine, "{name} must be torch int32 {shape}, got {found}", name=name, shape=list(shape), found=found)


def _distinct_in_rows(tables: Ints, own: npt.NDArray[np.bool_]) -> None:
    for i, (table, mine) in enumerate(zip(tables, own, strict=True)):
        require(len(set(table[mine].tolist())) == mine.sum(), "row {i} holds a page twice", i=i)
