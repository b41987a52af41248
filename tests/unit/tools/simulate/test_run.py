"""Scenarios small enough to work out by hand: prefill takes 0.05 ms a token, a decode step 10 ms."""

import pytest
from tools.simulate.device import DeviceModel
from tools.simulate.lengths import Lengths
from tools.simulate.server import PoolTooSmall
from tools.simulate.stats import Latency
from tools.simulate.workload import Workload

CONFIGURATIONS = {
    "plain": {},
    "asynchronous": {"async_scheduling": True},
    "whole prompts": {"chunked_prefill": False},
    "prefix caching": {"prefix_caching": True, "async_scheduling": True},
    "pressure": {"kv_tokens": 1024},
    "pressure, asynchronous, cached": {"kv_tokens": 1024, "async_scheduling": True, "prefix_caching": True},
    "pressure, priorities": {"kv_tokens": 1024, "scheduling_policy": "priority"},
    "prefill first": {"tt": {"decode_interleave_enabled": False}},
    "much decoding": {"tt": {"decode_interleave_prefill_steps": 1, "decode_interleave_decode_steps": 3}},
}


@pytest.fixture
def jobs():
    return Workload(
        requests=120,
        rate=20,
        prompt=Lengths.parse("lognormal:150:1"),
        output=Lengths.parse("uniform:1-60"),
        prefix_tokens=128,
        prefix_groups=2,
        priorities=3,
        seed=5,
    ).jobs(1024)


def same(latency):
    return Latency(mean=latency, p50=latency, p90=latency, p99=latency, max=latency)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_every_request_gets_its_tokens(run, jobs, configuration):
    result = run(jobs, DeviceModel(switch_ms=1, host_ms=0.5), **CONFIGURATIONS[configuration])
    report = result.report
    assert report.requests == len(jobs)
    assert report.output_tokens == sum(job.output_tokens for job in jobs)
    assert report.prompt_tokens == sum(job.prompt_tokens for job in jobs)
    assert result.gaps.total() == report.output_tokens - report.requests
    assert len(result.timeline.starts) == report.prefill_steps + report.decode_steps
    assert (report.preemptions > 0) is configuration.startswith("pressure")
    assert (report.recomputed_tokens > 0) is configuration.startswith("pressure")
    assert (report.cached_tokens > 0) is ("cach" in configuration)


def test_steps_do_not_overlap(run, jobs):
    timeline = run(jobs, async_scheduling=True).timeline
    assert all(end <= start for end, start in zip(timeline.ends, timeline.starts[1:], strict=False))


def test_a_run_is_repeatable(run, jobs):
    first, second = run(jobs, kv_tokens=1024), run(jobs, kv_tokens=1024)
    assert first.report == second.report
    assert first.gaps == second.gaps
    assert first.timeline.starts == second.timeline.starts


def test_one_request(run, job):
    report = run([job("a", 2, 100, 3)]).report
    assert (report.ttft_ms, report.itl_ms, report.e2e_ms) == (same(5.0), same(10.0), same(25.0))
    assert report.duration_s == 0.025
    assert (report.requests_per_s, report.output_tokens_per_s) == (40, 120)
    assert (report.prefill_steps, report.decode_steps, report.switches) == (1, 2, 1)
    assert (report.device_busy, report.slots_mean, report.slots_max) == (1, 1, 1)
    assert (report.decode_stalls_s, report.first_token_waits_s) == ({}, {})


def test_costs_of_a_step(run, job):
    device = DeviceModel(prefill_token_ms=0.1, prefill_step_ms=2, decode_step_ms=7, switch_ms=0.5, host_ms=0.25)
    report = run([job("a", 0, 300, 3)], device).report
    # two chunks, 256 and 44 tokens
    assert report.ttft_ms == same(0.25 + 2 + 25.6 + 0.25 + 2 + 4.4)
    assert report.itl_ms == Latency(mean=7.5, p50=7.25, p90=7.75, p99=7.75, max=7.75)
    assert report.decode_stalls_s == {"host": 0.0005, "mode switch": 0.0005}


def test_an_asynchronous_host_works_while_the_device_does(run, job):
    device = DeviceModel(host_ms=4)
    assert run([job("a", 0, 100, 3)], device).report.itl_ms == same(14.0)
    assert run([job("a", 0, 100, 3)], device, async_scheduling=True).report.itl_ms == same(10.0)


def test_waiting_for_a_slot(run, job):
    report = run([job("a", 0, 100, 3), job("b", 0.001, 100, 1)], max_num_seqs=1).report
    assert report.ttft_ms == Latency(mean=17.0, p50=5.0, p90=29.0, p99=29.0, max=29.0)
    assert report.first_token_waits_s == {"no free slot": 0.020, "step in progress": 0.004}


def test_waiting_for_a_chunk_and_for_a_turn(run, job):
    """b's second chunk waits for a's decode step, which waits for b's first."""
    options = {"decode_interleave_prefill_steps": 1}
    report = run([job("a", 0, 100, 4), job("b", 0.010, 300, 1)], tt=options).report
    # a: prefill to 5, decode to 15; b: 256 tokens to 27.8; a to 37.8; b: 44 tokens to 40; a to 50
    assert report.itl_ms == Latency(mean=15.0, p50=12.2, p90=22.8, p99=22.8, max=22.8)
    assert report.ttft_ms == Latency(mean=17.5, p50=5.0, p90=30.0, p99=30.0, max=30.0)
    assert report.decode_stalls_s == {"prefill step": 0.015}
    assert report.first_token_waits_s == {"decode turn": 0.010, "step in progress": 0.005}
    assert report.longest_prefill_run == 1


def test_a_preemption(run, job):
    """Both fill 4 pages of 16 tokens; at their 33rd token the older takes the younger's pages."""
    jobs = [job("a", 0, 16, 40), job("b", 0, 16, 40)]
    report = run(jobs, block_size=16, kv_tokens=64, max_model_len=64).report
    assert (report.preemptions, report.recomputed_tokens) == (1, 32)
    assert report.kv_max == 1
    # b loses its place with 17 tokens, waits for a's other 23 and then replays 33 tokens
    assert report.itl_ms.max == 230 + 33 * 0.05
    assert report.decode_stalls_s == {"preempted": 0.23}
    assert report.first_token_waits_s == {}


def test_shared_prefixes_are_computed_once(run, job):
    jobs = [job(name, at, 200, 2, prefix_group=0, prefix_tokens=150) for name, at in (("a", 0), ("b", 1))]
    assert run(jobs).report.cached_tokens == 0
    report = run(jobs, prefix_caching=True).report
    # two whole pages of 64
    assert report.cached_tokens == 128
    assert report.ttft_ms == Latency(mean=6.8, p50=3.6, p90=10.0, p99=10.0, max=10.0)


def test_a_pool_that_cannot_hold_a_request_is_refused(run, job):
    with pytest.raises(PoolTooSmall) as caught:
        run([job("a", 0, 100, 3)], kv_tokens=512)
    assert str(caught.value) == (
        "A pool of 512 tokens cannot hold one request of --max-model-len 1024. "
        "Use --kv-tokens 1024 or more, or a smaller --max-model-len."
    )
