"""What must hold for adapters that serve several lanes: a lane's requests see nothing of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.conformance.cases import Case, RowSpec
from vllm_tt.conformance.check_row import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.rig import Sizes

__all__ = ["LANES_APART", "lanes_to_try"]

_MOST = 4


def lanes_to_try(chips: int) -> int:
    """How many lanes a mesh is divided into; 1 where it cannot be."""
    return next((lanes for lanes in range(_MOST, 1, -1) if chips % lanes == 0), 1)


def _lanes_are_apart(bench: Bench, case: Case) -> str | None:
    """Requests with the same page ids in all lanes; each must give what it gives alone in the first lane."""
    rows, sizes = bench.rows(case), bench.rig.sizes
    for way, played in (("beside the others", _together), ("in steps of its own", _in_turn)):
        for row, found in zip(rows, list(played(bench, case)), strict=True):
            expected = bench.alone(row.tokens, row.length, case.steps)
            for step, (one, other) in enumerate(zip(found, expected, strict=True)):
                lane, when = sizes.lane_of(row.slot), f"after decode step {step}" if step else "after the prefill"
                what = f"lane {lane} {way}, {when}, and its request alone in lane 0"
                if fault := bench.compare(what, one, other):
                    return f"{fault}. {_rule(sizes, lane)}"
    return None


def _together(bench: Bench, case: Case) -> Iterator[list[torch.Tensor]]:
    """All lanes in every step: for each row the logits [V] after its prompt and after each decode step."""
    yield from bench.play(case)


def _in_turn(bench: Bench, case: Case) -> Iterator[list[torch.Tensor]]:
    """Prompts in lane after lane, then decode steps in lane after lane, with nothing in the others."""
    rows = bench.rows(case)
    prompts = [bench.prefill([row])[0] for row in rows]
    for row, logits in zip(rows, prompts, strict=True):
        yield [logits, *(bench.rig.decode([row.token(step)])[row.slot] for step in range(case.steps))]


def _rule(sizes: Sizes, lane: int) -> str:
    first, other = lane * sizes.slots_per_lane, 1 if lane == 0 else 0
    return (
        f"Slots {first} to {first + sizes.slots_per_lane - 1} are lane {lane}'s, and so are all pages that their page "
        f"tables name: page 1 of lane {lane} must not be page 1 of lane {other} (docs/bundles.md, Lanes)"
    )


def _a_row_in_each_lane(sizes: Sizes) -> list[Case]:
    size, each = sizes.page_size, sizes.slots_per_lane
    lengths = (size + 3, 5, 2 * size, max(1, size - 1))
    rows = tuple(
        RowSpec(lane * each + (each - 1 if lane % 2 else 0), lengths[lane % len(lengths)])
        for lane in range(sizes.lanes)
    )
    return [Case(rows=rows, steps=2, permuted=True)]


LANES_APART = Check(
    name="lanes",
    what="every lane's requests give what they give alone, with the same page ids in all lanes",
    cases=_a_row_in_each_lane,
    run=_lanes_are_apart,
    declared=("supports_lanes",),
)
"""To be tried on an adapter that was loaded with lanes."""
