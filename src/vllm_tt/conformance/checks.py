"""What must hold for every adapter: each a name, the cases to try and a function that finds what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.conformance.bench import Bench, Played
from vllm_tt.conformance.cases import Case, RowSpec
from vllm_tt.conformance.rig import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from vllm_tt.conformance.pages import PageWatch
    from vllm_tt.conformance.rig import Sizes

__all__ = ["CHECKS", "Check"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One row of the report."""

    name: str
    what: str
    cases: Callable[[Sizes], list[Case]]
    run: Callable[[Bench, Case], str | None]
    """What is wrong with a case, or None; may raise what the adapter raises."""
    declared: str = ""
    """The capability without which the row is not looked at."""


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


def _device_takes_the_likeliest(bench: Bench, case: Case) -> str | None:
    """With ``steps`` decodes: sampled from host inputs, then one more that the device goes on with by itself."""
    rows = bench.rows(case)
    chosen = [[token] for token in bench.rig.prefill([row.chunk() for row in rows], sampled=True).tolist()]
    for step in range(case.steps):
        goes_on = step > 0
        inputs = [_given(row, tokens, step, hidden=goes_on) for row, tokens in zip(rows, chosen, strict=True)]
        found = bench.rig.decode(inputs, sampled=True, goes_on=goes_on)
        for row, tokens in zip(rows, chosen, strict=True):
            tokens.append(int(found[row.slot]))
    for row, tokens in zip(rows, chosen, strict=True):
        logits = bench.alone(row.tokens[: row.length] + tokens, row.length, case.steps)
        for step, (token, scores) in enumerate(zip(tokens, logits, strict=True)):
            if fault := _not_the_likeliest(token, scores, bench.tolerance):
                after = f"decode step {step}" if step else "the prefill"
                return f"slot {row.slot} after {after}: {fault}"
    return None


def _given(row: Played, tokens: Sequence[int], step: int, *, hidden: bool) -> Token:
    """The token sampled last; ``hidden`` when the host does not know it yet and the device must."""
    token = 0 if hidden else tokens[-1]
    return Token(slot=row.slot, token=token, position=row.length + step, pages=row.pages)


def _not_the_likeliest(token: int, logits: torch.Tensor, tolerance: float) -> str | None:
    if not 0 <= token < len(logits):
        return f"sampled token {token}, which is not in the vocabulary"
    best = int(logits.argmax())
    behind = float(logits[best] - logits[token])
    if behind <= tolerance * float((logits - logits.mean()).abs().max()):
        return None
    return f"sampled token {token}; the host's logits are highest for token {best}"


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


def _one(*rows: tuple[int, int, int]) -> Callable[[Sizes], list[Case]]:
    """Single rows: pages, tokens beyond them, decode steps."""

    def cases(sizes: Sizes) -> list[Case]:
        made = []
        for i, (pages, more, steps) in enumerate(rows):
            slot = 0 if i % 2 == 0 else sizes.slots - 1
            made.append(Case(rows=(RowSpec(slot, max(1, pages * sizes.page_size + more)),), steps=steps))
        return made

    return cases


def _chunked(sizes: Sizes) -> list[Case]:
    size = sizes.page_size
    shapes = ((2 * size + 5, size), (size + 9, max(1, size // 2 + 1)), (11, 3))
    return [Case(rows=(RowSpec(0, length),), steps=1, chunk=chunk) for length, chunk in shapes]


def _several(count: int, steps: int) -> Callable[[Sizes], list[Case]]:
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


def _prefixes(sizes: Sizes) -> list[Case]:
    return (
        [Case(rows=(RowSpec(0, pages * sizes.page_size + 7),), steps=1) for pages in (1, 2)] if sizes.slots > 1 else []
    )


CHECKS: tuple[Check, ...] = (
    Check(
        name="prefill-decode",
        what="prefill then decode equals one longer prefill",
        cases=_one((0, 1, 2), (1, -1, 3), (2, 3, 1)),
        run=_decode_equals_prefill,
    ),
    Check(
        name="chunks",
        what="a prompt in chunks equals the prompt at once",
        cases=_chunked,
        run=_chunks_equal_whole,
        declared="supports_chunked_prefill",
    ),
    Check(
        name="prefix-caching",
        what="a prompt over cached pages equals the prompt at once",
        cases=_prefixes,
        run=_prefix_is_reused,
        declared="supports_prefix_caching",
    ),
    Check(
        name="row-alone",
        what="every row equals the row alone",
        cases=_several(4, 2),
        run=_rows_equal_alone,
    ),
    Check(
        name="foreign-pages",
        what="pages of others stay untouched",
        cases=_several(2, 2),
        run=_others_pages_stay,
    ),
    Check(
        name="idle-rows",
        what="rows at position -1 are ignored",
        cases=_several(2, 2),
        run=_idle_rows_are_left_alone,
    ),
    Check(
        name="async-split",
        what="the asynchronous split equals the synchronous call",
        cases=_several(3, 2),
        run=_split_equals_synchronous,
        declared="supports_async_decode",
    ),
    Check(
        name="device-sampling",
        what="greedy sampling on the device takes the likeliest token",
        cases=_several(3, 3),
        run=_device_takes_the_likeliest,
        declared="supports_sample_on_device",
    ),
)
"""The rows whose numbers are compared, in the order of the report."""
