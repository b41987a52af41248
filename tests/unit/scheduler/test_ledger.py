"""The books of steps whose times are set."""

import json
from types import SimpleNamespace

import pytest
from steps import decode, empty, prefill

from vllm_tt.platform.compat import told_counts
from vllm_tt.platform.settled import STATE_KEY
from vllm_tt.scheduler.lane_log import LaneFigures
from vllm_tt.scheduler.ledger import StepLedger

FIGURES = [
    LaneFigures(running=2, waiting=1, kv_cache_usage=0.25),
    LaneFigures(running=1, waiting=0, kv_cache_usage=0.5),
]


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(clock, tmp_path):
    config = SimpleNamespace(
        additional_config={
            STATE_KEY: {"lanes": 2, "rows_per_lane": 2},
            "tt": {"step_log": str(tmp_path / "steps.jsonl")},
        },
        parallel_config=SimpleNamespace(data_parallel_size=1, data_parallel_index=0),
    )
    made = StepLedger(config, clock)
    yield made
    made.shutdown()


@pytest.fixture
def run(ledger, clock):
    """``run(output, began, ended, decoding)``: a step from then to then; its record."""

    def run(output, began, ended, decoding=0, **noted):
        ledger.open(output, 100 + began, decoding)
        for name, value in noted.items():
            setattr(output.record, name, value)
        clock.now = 100 + ended
        ledger.close(output, lambda: FIGURES)
        return output.record

    return run


def test_a_step_costs_the_time_since_the_one_before_ended(ledger, run):
    run(prefill(("a", 0, 0, 5, False)), 1.0, 1.5, decoding=1, waited=0.25)
    run(decode(("a", 0, 5, 6, False)), 1.4, 1.75)
    run(decode(("a", 0, 6, 7, False)), 1.7, 2.25, waited=0.5)
    counts = ledger.counters.snapshot()
    assert counts["step_seconds"] == {"prefill": 500_000, "decode": 750_000}
    assert counts["device_wait_seconds"] == {"prefill": 250_000, "decode": 500_000}
    assert counts["tokens"] == {"prefill": 5, "decode": 2}
    assert counts["phase_switches"] == {"": 1}
    assert "decode_stalls" not in counts


def test_a_prefill_is_not_charged_to_the_decode_whose_results_are_applied_after_it(ledger, clock):
    first, second = decode(("a", 0, 5, 6, False)), prefill(("b", 1, 0, 4, False))
    ledger.open(first, 100.0, 0)
    ledger.open(second, 100.25, 2)
    first.record.ended, second.record.ended = 100.5, 103.5
    clock.now = 104.0
    for output in (first, second):
        ledger.close(output, lambda: FIGURES)
    counts = ledger.counters.snapshot()
    assert counts["step_seconds"] == {"decode": 500_000, "prefill": 3_000_000}
    assert counts["decode_stall_seconds"] == {"": 3_000_000}


def test_a_prefill_stalls_who_could_decode(ledger, run):
    # two decode already, and the prompt of "c" ends with this step
    record = run(prefill(("c", 2, 0, 5, False), ("d", 3, 0, 8, True)), 0.0, 0.5, decoding=3)
    assert record.stalled == 2
    counts = ledger.counters.snapshot()
    assert counts["decode_stalls"] == {"": 1}
    assert counts["decode_stall_seconds"] == {"": 500_000}
    assert counts["stalled_request_seconds"] == {"": 1_000_000}


def test_prompts_in_chunks_count_once_each_time_they_begin(ledger, run):
    run(prefill(("a", 0, 0, 4, True), ("b", 2, 0, 3, False)), 0, 1)
    run(prefill(("a", 0, 4, 8, True)), 1, 2)
    run(prefill(("a", 0, 8, 9, False)), 2, 3)
    assert ledger.counters.snapshot()["chunked_prompts"] == {"": 1}
    run(prefill(("c", 0, 0, 4, True), released=[0]), 3, 4)
    run(prefill(("d", 0, 0, 4, True), released=[0]), 4, 5)
    assert ledger.counters.snapshot()["chunked_prompts"] == {"": 3}


def test_what_is_computed_again_after_a_preemption(ledger, run):
    run(prefill(("a", 0, 0, 6, False)), 0, 1)
    ledger.preempted("a", 8)
    record = run(decode(("b", 1, 4, 5, False), released=[0]), 1, 2)
    assert record.preempted == ("a",)
    run(prefill(("a", 0, 2, 5, True)), 2, 3)
    run(prefill(("a", 0, 5, 9, False)), 3, 4)
    run(prefill(("c", 1, 0, 9, False)), 4, 5)
    counts = ledger.counters.snapshot()
    assert (counts["recomputed_tokens"], counts["preemptions"]) == ({"": 6}, {"": 1})


def test_a_preempted_request_that_ends_is_forgotten(ledger, run):
    ledger.preempted("a", 8)
    run(decode(("b", 1, 4, 5, False), finished=["a"]), 0, 1)
    run(prefill(("a", 0, 0, 8, False)), 1, 2)
    assert "recomputed_tokens" not in ledger.counters.snapshot()


def test_a_step_of_nothing_is_none(ledger, clock):
    output = ledger.open(empty(released=[1]), 100.0, 0)
    ledger.close(output, lambda: FIGURES)
    assert output.record is None
    assert ledger.counters.snapshot() == {}


def test_statistics_carry_what_was_not_told_yet(ledger, run):
    run(decode(("a", 0, 5, 6, False)), 0.0, 0.5)
    stats = SimpleNamespace(waiting_lora_adapters={})
    ledger.tell(stats, lambda: FIGURES)
    told = told_counts(stats)
    assert told["step_seconds|decode"] == 500_000
    assert {name: told[name] for name in told if name.startswith("lane")} == {
        "lane_slots|0": 2,
        "lane_running|0": 2,
        "lane_waiting|0": 1,
        "lane_kv_cache_usage|0": 250_000,
        "lane_slots|1": 2,
        "lane_running|1": 1,
        "lane_waiting|1": 0,
        "lane_kv_cache_usage|1": 500_000,
    }
    ledger.tell(stats, lambda: FIGURES)
    assert all(name.startswith("lane") for name in told_counts(stats))
    ledger.tell(None, lambda: FIGURES)


def test_the_step_log_has_a_line_a_step(ledger, run, tmp_path):
    noted = {"sampled": "split", "reasons": ("logprobs",), "drain": "a changed batch", "waited": 0.25}
    run(prefill(("a", 0, 0, 5, False), ("b", 3, 0, 8, True)), 0.0, 0.5, decoding=2, **noted)
    run(decode(("a", 0, 5, 6, False)), 0.5, 0.75, sampled="device")
    ledger.open(empty(released=[0]), 100.0, 0)
    first, second = map(json.loads, (tmp_path / "steps.jsonl").read_text().splitlines())
    assert first.pop("time") > 1.7e9
    assert first == {
        "step": 1,
        "phase": "prefill",
        "ms": 500.0,
        "wait_ms": 250.0,
        "rows": [1, 1],
        "tokens": 13,
        "running": [2, 1],
        "waiting": [1, 0],
        "kv": [0.25, 0.5],
        "sampled": "split",
        "requests": ["a", "b"],
        "stalled": 1,
        "host": ["logprobs"],
        "drain": "a changed batch",
    }
    assert set(second) == {
        "step",
        "time",
        "phase",
        "ms",
        "wait_ms",
        "rows",
        "tokens",
        "running",
        "waiting",
        "kv",
        "sampled",
    }
