from pathlib import Path

import pytest
from family_breakages import LAYER_BREAKAGES, STATE_BREAKAGES, LooksBehindItsWindows, Remembers, WritesBehindItsWindows

from vllm_tt.conformance.checks import CHECKS
from vllm_tt.conformance.sequence import run_check

FOLDER = Path(__file__).parents[2] / "support"
BY_NAME = {check.name: check for check in CHECKS}


@pytest.fixture
def gemma_row(gemma_bench):
    """``gemma_row(mixin, name)``: what a row says of Gemma's adapter with the mixin in front."""
    return lambda mixin, name, **sizes: run_check(BY_NAME[name], gemma_bench(mixin, **sizes), FOLDER)


def test_an_adapter_with_windows_passes_every_row(gemma_bench):
    bench = gemma_bench(object)
    assert (len(bench.rig.pool.windows), bench.rig.sizes.layers, bench.rig.sizes.window) == (3, 6, 20)
    assert len({id(cache) for cache in bench.rig.kv_cache}) == 2, "buffers are shared"
    assert [(row.name, row.status) for check in CHECKS if (row := run_check(check, bench, FOLDER))] == [
        (check.name, "pass") for check in CHECKS
    ]


@pytest.mark.parametrize("breakage", LAYER_BREAKAGES, ids=lambda one: one.__name__)
def test_layers_that_are_wrong_in_one_way_fail_the_right_row(breakage, gemma_row):
    row = gemma_row(breakage, LAYER_BREAKAGES[breakage])
    assert row.status == "fail"
    assert row.case


def test_what_is_behind_the_window_is_named(gemma_row):
    detail = gemma_row(LooksBehindItsWindows, "windows").detail
    assert detail.startswith("null pages behind windows and its own there, after the prefill: the logits differ by ")
    detail = gemma_row(WritesBehindItsWindows, "windows").detail
    assert detail == "slot 3, with another request's pages behind windows, changed pages [6] of other requests"


def test_a_window_that_no_prompt_leaves_is_said(gemma_row):
    row = gemma_row(object, "windows", max_seq_len=24)
    why = "windows of 20 tokens leave no page behind; --max-model-len 30 shows it"
    assert (row.status, row.detail) == ("skip", why)


def test_an_adapter_with_state_by_slot_passes_every_row(llama_host, bench_of):
    bench = bench_of(type("Stateful", (Remembers, llama_host), {}))
    rows = {row.name: row.status for check in CHECKS if (row := run_check(check, bench, FOLDER)).status != "skip"}
    expected = ("prefill-decode", "chunks", "row-alone", "foreign-pages", "idle-rows", "slots")
    assert rows == dict.fromkeys(expected, "pass")


@pytest.mark.parametrize("breakage", STATE_BREAKAGES, ids=lambda one: one.__name__)
def test_state_that_is_wrong_in_one_way_fails_the_right_row(breakage, llama_host, bench_of):
    bench = bench_of(type(breakage.__name__, (breakage, llama_host), {}))
    row = run_check(BY_NAME[STATE_BREAKAGES[breakage]], bench, FOLDER)
    assert row.status == "fail"
    assert row.case


def test_slots_that_requests_have_given_up_are_released(llama_host, bench_of):
    class Listens(Remembers, llama_host):
        released = ()

        def release_slots(self, slots):
            self.released += (tuple(slots),)

    bench = bench_of(Listens)
    assert run_check(BY_NAME["slots"], bench, FOLDER).status == "pass"
    assert {slot for slots in bench.rig.adapter.released for slot in slots} == {0, 1, 3}
