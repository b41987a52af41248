"""What must hold for layers that look back over a window, and for state that is kept by slot."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_tt.conformance.bench import Played
from vllm_tt.conformance.cases import Case, RowSpec
from vllm_tt.conformance.check_row import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.rig import Rig, Sizes

__all__ = ["FAMILY_CHECKS"]


def _behind_windows(bench: Bench, case: Case) -> str | None:
    """The first row, whose page tables have other pages behind its windows than its own."""
    if len(case.rows) < 2:
        return None
    long, other = bench.rows(case)
    expected = bench.alone(long.tokens, long.length, case.steps)
    theirs = bench.alone(other.tokens, other.length, case.steps)
    chunk = case.chunk if bench.rig.capabilities.supports_chunked_prefill else None
    bench.prefill([other])
    for page, what in ((0, "null pages"), (other.pages[0], "another request's pages")):
        watch = bench.watch()
        with _pages_behind(bench.rig, page):
            found = bench.prefill([long], chunk)
            found += [bench.rig.decode([long.token(step)])[long.slot] for step in range(case.steps)]
        for step, (one, all_its_own) in enumerate(zip(found, expected, strict=True)):
            when = f"after decode step {step}" if step else "after the prefill"
            if fault := bench.compare(f"{what} behind windows and its own there, {when}", one, all_its_own):
                return fault
        if strange := watch.changed() - set(long.pages) - {0}:
            return f"slot {long.slot}, with {what} behind windows, changed pages {sorted(strange)} of other requests"
    found = [bench.rig.decode([other.token(step)])[other.slot] for step in range(case.steps)]
    return _unlike(bench, f"slot {other.slot}, whose pages were there, and alone", found, theirs[1:])


@contextmanager
def _pages_behind(rig: Rig, page: int) -> Iterator[None]:
    rig.behind = page
    try:
        yield
    finally:
        rig.behind = None


def _windows_end(sizes: Sizes) -> list[Case]:
    """A prompt that leaves whole pages behind the shortest window, and a short one in another slot."""
    if sizes.window is None or sizes.slots < 2:
        return []
    size, steps = sizes.page_size, 2
    longest = min(sizes.window + 2 * size + 3, sizes.max_seq_len - steps)
    return [Case(rows=(RowSpec(sizes.slots - 1, longest), RowSpec(0, size)), steps=steps, permuted=True, chunk=size)]


def _why_no_windows(sizes: Sizes) -> str | None:
    if sizes.window is None:
        return "no layer has a window"
    needed = sizes.window + sizes.page_size + 2
    if sizes.max_seq_len < needed:
        return f"windows of {sizes.window} tokens leave no page behind; --max-model-len {needed} shows it"
    return None


def _slots_are_apart(bench: Bench, case: Case) -> str | None:
    if len(case.rows) < 2:
        return None
    first, second = bench.rows(case)
    expected = [bench.alone(row.tokens, row.length, case.steps) for row in (first, second)]
    for before, row, own in ((first, second, expected[1]), (second, first, expected[0])):
        bench.prefill([before])
        after = Played(before.slot, row.tokens, row.length, row.pages)
        found = bench.prefill([after])
        found += [bench.rig.decode([after.token(step)])[after.slot] for step in range(case.steps)]
        if fault := _unlike(bench, f"slot {after.slot} after another request, and alone", found, own):
            return fault
    if not bench.rig.capabilities.supports_chunked_prefill:
        return None
    return _between_chunks(bench, case, (first, second), expected)


def _between_chunks(
    bench: Bench, case: Case, rows: tuple[Played, Played], expected: list[list[torch.Tensor]]
) -> str | None:
    """The second row is prefilled and decodes while the first is between two chunks."""
    first, second = rows
    middle = first.length // 2
    if not middle:
        return None
    bench.rig.prefill([first.chunk(0, middle)])
    others = bench.prefill([second])
    others += [bench.rig.decode([second.token(step)])[second.slot] for step in range(case.steps)]
    found = list(bench.rig.prefill([first.chunk(middle)]))
    found += [bench.rig.decode([first.token(step)])[first.slot] for step in range(case.steps)]
    if fault := _unlike(bench, f"slot {first.slot}, idle between two chunks, and alone", found, expected[0]):
        return fault
    return _unlike(bench, f"slot {second.slot} between chunks of slot {first.slot}, and alone", others, expected[1])


def _unlike(bench: Bench, what: str, found: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
    pairs = enumerate(zip(found, expected, strict=True))
    faults = (bench.compare(f"{what}, logits {step}", one, other) for step, (one, other) in pairs)
    return next((fault for fault in faults if fault), None)


def _a_long_and_a_short(sizes: Sizes) -> list[Case]:
    if sizes.slots < 2:
        return []
    return [
        Case(rows=(RowSpec(sizes.slots - 1, sizes.page_size + 5), RowSpec(1 if sizes.slots > 2 else 0, 2)), steps=2)
    ]


FAMILY_CHECKS = (
    Check(
        name="slots",
        what="a slot keeps nothing of the request before, and is left alone while others compute",
        cases=_a_long_and_a_short,
        run=_slots_are_apart,
    ),
    Check(
        name="windows",
        what="pages behind a window are neither read nor written, whosever they are",
        cases=_windows_end,
        run=_behind_windows,
        pointless=_why_no_windows,
    ),
)
"""For models whose layers do not all keep every token in pages."""
