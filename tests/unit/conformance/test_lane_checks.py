import re
from pathlib import Path

import pytest
from breakages import LANE_BREAKAGES, LanesShareOneCache, LeavesOutEmptyLanes

from vllm_tt.conformance.checks import CHECKS
from vllm_tt.conformance.lane_checks import LANES_APART, lanes_to_try
from vllm_tt.conformance.sequence import run_check

FOLDER = Path(__file__).parents[2] / "support"


@pytest.fixture
def row_of(llama_host, bench_of):
    """``row_of(*mixins, lanes=2)``: what the row says of the reference adapter with these in front."""

    def row(*mixins, lanes=2):
        return run_check(LANES_APART, bench_of(type("Adapter", (*mixins, llama_host), {}), lanes), FOLDER)

    return row


@pytest.mark.parametrize("lanes", [2, 4])
def test_the_reference_passes(row_of, lanes):
    row = row_of(lanes=lanes)
    assert (row.status, row.case) == ("pass", "")
    assert row.detail.startswith(
        "every lane's requests give what they give alone, with the same page ids in all lanes (largest difference "
    )


def test_all_other_rows_hold_in_lanes_too(llama_host, bench_of):
    bench = bench_of(llama_host, 2)
    others = [check for check in CHECKS if check.name not in ("foreign-pages", "idle-rows", "windows")]
    rows = [run_check(check, bench, FOLDER) for check in others]
    assert [row.name for row in rows if row.status != "pass"] == []


@pytest.mark.parametrize("breakage", LANE_BREAKAGES, ids=lambda one: one.__name__)
def test_lanes_that_are_mixed_up_fail(row_of, breakage):
    row = row_of(breakage)
    assert (row.name, row.status, row.case) == ("lanes", "fail", LANE_BREAKAGES[breakage])


@pytest.mark.parametrize(
    ("breakage", "lane", "when", "rule"),
    [
        (
            LanesShareOneCache,
            0,
            "the prefill",
            "Slots 0 to 1 are lane 0's{}page 1 of lane 0 must not be page 1 of lane 1",
        ),
        (
            LeavesOutEmptyLanes,
            1,
            "decode step 1",
            "Slots 2 to 3 are lane 1's{}page 1 of lane 1 must not be page 1 of lane 0",
        ),
    ],
    ids=["shared cache", "empty lanes"],
)
def test_the_lane_and_what_to_do_are_named(row_of, breakage, lane, when, rule):
    before, after = row_of(breakage).detail.split("; ")
    what = f"lane {lane} beside the others, after {when}, and its request alone in lane 0"
    assert re.fullmatch(rf"{what}: the logits differ by \S+ of their spread \(limit 0\.001\)", before)
    pages = ", and so are all pages that their page tables name: "
    assert after.partition(". ")[2] == f"{rule.format(pages)} (docs/bundles.md, Lanes)"


def test_without_the_declaration_nothing_is_tried(llama_host, bench_of):
    plain = type("Plain", (llama_host,), {"model_capabilities": {}})
    row = run_check(LANES_APART, bench_of(plain), FOLDER)
    assert (row.status, row.detail) == ("skip", "supports_lanes is not declared")


@pytest.mark.parametrize(("chips", "lanes"), [(1, 1), (2, 2), (3, 3), (4, 4), (6, 3), (7, 1), (8, 4), (32, 4)])
def test_lanes_divide_the_mesh(chips, lanes):
    assert lanes_to_try(chips) == lanes
