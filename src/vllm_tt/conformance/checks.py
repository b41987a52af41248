"""What must hold for every adapter: each a name, the cases to try and a function that finds what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.conformance.bench import Bench, Played
from vllm_tt.conformance.check_row import Check
from vllm_tt.conformance.control_checks import CONTROL_CHECKS
from vllm_tt.conformance.device_checks import DEVICE_CHECKS
from vllm_tt.conformance.family_checks import FAMILY_CHECKS
from vllm_tt.conformance.workloads import chunked, prefixes, several, single

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from vllm_tt.conformance.cases import Case
    from vllm_tt.conformance.pages import PageWatch

__all__ = ["CHECKS"]


def _decode_equals_prefill(bench: Bench, case: Case) -> str | None:
    (row,) = bench.rows(case)
    for step, logits in enumerate(bench.play(case)[0][1:], 1):
        (expected,) = bench.alone(row.tokens, row.length + step, 0)
        if fault := bench.compare(f"decode step {step} and a prefill of {row.length + step} tokens", logits, expected):
            return fault
    return None


def _chunks_equal_whole(bench: Bench, case: Case) -> str | None:
    (row,) = bench.rows(case)
    found, expected = bench.play(case)[0], bench.alone(row.tokens, row.length, case.steps)
    return _first(bench, "in chunks and at once", found, expected)


def _rows_equal_alone(bench: Bench, case: Case) -> str | None:
    for row, found in zip(bench.rows(case), bench.play(case), strict=True):
        expected = bench.alone(row.tokens, row.length, case.steps)
        if fault := _first(bench, f"slot {row.slot} in the batch and alone", found, expected):
            return fault
    return None


def _prefix_is_reused(bench: Bench, case: Case) -> str | None:
    (first,) = bench.rows(case)
    size = bench.rig.sizes.page_size
    shared = (first.length - 1) // size
    if not shared:
        return None
    own = [token - 1 for token in first.tokens[shared * size :]]
    after = first.pages[-1] + 1
    pages = first.pages[:shared] + list(range(after, after + len(first.pages) - shared))
    second = Played(case.rows[0].slot + 1, first.tokens[: shared * size] + own, first.length, pages)
    bench.prefill([first])
    found = list(bench.rig.prefill([second.chunk(start=shared * size)]))
    found += [bench.rig.decode([second.token(step)])[second.slot] for step in range(case.steps)]
    expected = bench.alone(second.tokens, second.length, case.steps)
    if fault := _first(bench, f"with {shared} cached pages and without", found, expected):
        return fault
    return _prefix_of_the_same_call(bench, first, second, shared * size)


def _prefix_of_the_same_call(bench: Bench, first: Played, second: Played, start: int) -> str | None:
    """The first row fills the pages in the very call in which the second reads them."""
    before = Played(first.slot, [token - 1 for token in first.tokens], first.length, first.pages)
    bench.prefill([before])
    found = bench.rig.prefill([first.chunk(), second.chunk(start=start)])[1]
    (expected,) = bench.alone(second.tokens, second.length, 0)
    return bench.compare(
        f"after {start} tokens that an earlier row of the same call fills, and at once", found, expected
    )


def _others_pages_stay(bench: Bench, case: Case) -> str | None:
    if len(case.rows) < 2:
        return None
    first, second = _interleaved(bench, case)
    bench.prefill([first])
    watch = bench.watch()
    bench.prefill([second])
    if fault := _strayed(watch, second, "prefill"):
        return fault
    watch = bench.watch()
    for step in range(case.steps):
        bench.rig.decode([second.token(step)])
    if fault := _strayed(watch, second, "decode"):
        return fault
    found = bench.rig.decode([first.token(0)])[first.slot]
    expected = bench.alone(first.tokens, first.length, 1)[1]
    return bench.compare(f"slot {first.slot} after slot {second.slot} and before it", found, expected)


def _idle_rows_are_left_alone(bench: Bench, case: Case) -> str | None:
    if len(case.rows) < 2:
        return None
    rows = bench.rows(case)
    bench.prefill(rows)
    found: list[list[torch.Tensor]] = []
    for row in rows:
        watch = bench.watch()
        found.append([bench.rig.decode([row.token(step)])[row.slot] for step in range(case.steps)])
        if fault := _strayed(watch, row, "decode beside idle slots"):
            return fault
    for row, logits in zip(rows, found, strict=True):
        expected = bench.alone(row.tokens, row.length, case.steps)[1:]
        if fault := _first(bench, f"slot {row.slot} beside idle slots and alone", logits, expected):
            return fault
    return None


def _split_equals_synchronous(bench: Bench, case: Case) -> str | None:
    for row, found in zip(bench.rows(case), bench.play(case, split=True), strict=True):
        expected = bench.alone(row.tokens, row.length, case.steps)
        if fault := _first(bench, f"slot {row.slot} read back asynchronously and at once", found, expected):
            return fault
    return None


def _first(bench: Bench, what: str, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str | None:
    for step, (one, other) in enumerate(zip(found, expected, strict=True)):
        if fault := bench.compare(f"{what}, logits {step}", one, other):
            return fault
    return None


def _interleaved(bench: Bench, case: Case) -> tuple[Played, Played]:
    """The first two rows with every other page each, one more token for the first."""
    first, second, *_ = bench.rows(case, extra=1)
    longest = max(len(first.pages), len(second.pages))
    first.pages, second.pages = list(range(1, 2 * longest, 2)), list(range(2, 2 * longest + 1, 2))
    return first, second


def _strayed(watch: PageWatch, row: Played, what: str) -> str | None:
    strange = watch.changed() - set(row.pages) - {0}
    if not strange:
        return None
    return f"{what} of slot {row.slot}, whose pages are {row.pages}, changed pages {sorted(strange)}"


CHECKS: tuple[Check, ...] = (
    Check(
        name="prefill-decode",
        what="prefill then decode equals one longer prefill",
        cases=single((0, 1, 2), (1, -1, 3), (2, 3, 1)),
        run=_decode_equals_prefill,
    ),
    Check(
        name="chunks",
        what="a prompt in chunks equals the prompt at once",
        cases=chunked,
        run=_chunks_equal_whole,
        declared=("supports_chunked_prefill",),
    ),
    Check(
        name="prefix-caching",
        what="a prompt over cached pages equals the prompt at once",
        cases=prefixes,
        run=_prefix_is_reused,
        declared=("supports_prefix_caching",),
    ),
    Check(
        name="row-alone",
        what="every row equals the row alone",
        cases=several(4, 2),
        run=_rows_equal_alone,
    ),
    Check(
        name="foreign-pages",
        what="pages of others stay untouched",
        cases=several(2, 2),
        run=_others_pages_stay,
    ),
    Check(
        name="idle-rows",
        what="rows at position -1 are ignored",
        cases=several(2, 2),
        run=_idle_rows_are_left_alone,
    ),
    Check(
        name="async-split",
        what="the asynchronous split equals the synchronous call",
        cases=several(3, 2),
        run=_split_equals_synchronous,
        declared=("supports_async_decode",),
    ),
    *FAMILY_CHECKS,
    *DEVICE_CHECKS,
    *CONTROL_CHECKS,
)
"""The rows whose numbers are compared, in the order of the report."""
