"""How long decodes wait for prefill, with the real scheduler on a simulated device.

A prompt token takes 0.05 ms of prefill, a decode step 10 ms.
"""

from itertools import groupby

import pytest
from tools.simulate.device import DeviceModel
from tools.simulate.run import simulate
from tools.simulate.server import Server
from tools.simulate.workload import NS_PER_S, Job

CHUNK = 256
POLICIES = [(1, 1), (2, 1), (3, 2), (4, 1), (2, 5)]
PREFILL_FIRST = {"decode_interleave_enabled": False}


def job(name, arrival, prompt, output):
    return Job(name=name, arrival_ns=round(arrival * NS_PER_S), prompt_tokens=prompt, output_tokens=output)


def interleave(prefills, decodes):
    return {"decode_interleave_prefill_steps": prefills, "decode_interleave_decode_steps": decodes}


def serve(jobs, tt, *, device=None, **settings):
    given = {"max_num_batched_tokens": CHUNK, "max_model_len": 8192, "kv_tokens": 65_536, "tt": tt}
    return simulate(sorted(jobs, key=lambda job: job.arrival_ns), Server(**given | settings), device or DeviceModel())


def phases(result):
    """The steps as runs of prefill (P) and decode (D)."""
    letters = ("D" if decode else "P" for decode in result.timeline.decodes)
    return [(letter, len(list(run))) for letter, run in groupby(letters)]


@pytest.fixture
def eight_chunks():
    """One request decodes when a prompt of eight chunks arrives."""
    return [job("decoder", 0, 16, 300), job("prompt", 1, 8 * CHUNK, 4)]


@pytest.fixture
def a_prompt_every_step():
    """One request decodes when a prompt begins to arrive every 10 ms, each for one token."""
    return [job("decoder", 0, 16, 300), *(job(f"prompt {i}", 1 + i / 100, CHUNK, 1) for i in range(60))]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES)
class TestInterleaved:
    def test_a_long_prompt(self, eight_chunks, policy, asynchronous):
        prefills, decodes = policy
        result = serve(eight_chunks, interleave(*policy), async_scheduling=asynchronous)
        assert result.report.longest_prefill_run == prefills
        assert result.report.itl_ms.max == pytest.approx(prefills * CHUNK * 0.05 + 10)
        # the decoder's own prompt and its decodes until the other arrives, then runs of the configured lengths
        first_turns = phases(result)[2:-2]
        assert [turn for turn in first_turns if turn[0] == "P"] == [("P", prefills)] * (7 // prefills)
        assert {turn for turn in first_turns if turn[0] == "D"} <= {("D", decodes)}

    def test_a_prompt_every_step(self, a_prompt_every_step, policy, asynchronous):
        prefills, _ = policy
        result = serve(a_prompt_every_step, interleave(*policy), async_scheduling=asynchronous)
        assert result.report.longest_prefill_run == prefills
        assert result.report.itl_ms.max == pytest.approx(prefills * CHUNK * 0.05 + 10)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
class TestPrefillFirst:
    def test_a_long_prompt(self, eight_chunks, asynchronous):
        result = serve(eight_chunks, PREFILL_FIRST, async_scheduling=asynchronous)
        assert result.report.longest_prefill_run == 8
        assert [length for letter, length in phases(result) if letter == "P"] == [1, 8]

    def test_a_prompt_every_step(self, a_prompt_every_step, asynchronous):
        result = serve(a_prompt_every_step, PREFILL_FIRST, async_scheduling=asynchronous)
        assert result.report.longest_prefill_run == 60
        assert [length for letter, length in phases(result) if letter == "P"] == [1, 60]


@pytest.fixture
def long_prompts():
    """24 requests decode while a prompt of 8,000 tokens arrives every 2 s."""
    decoders = [job(f"decoder {i}", 0, 64, 1200) for i in range(24)]
    return decoders + [job(f"prompt {i}", 1 + 2 * i, 8000, 32) for i in range(6)]


@pytest.mark.parametrize("switch_ms", [0, 1])
@pytest.mark.parametrize("chunk", [1024, 2048, 4096])
def test_decodes_wait_for_one_chunk_at_little_cost(long_prompts, chunk, switch_ms):
    settings = {
        "device": DeviceModel(switch_ms=switch_ms),
        "max_num_batched_tokens": chunk,
        "kv_tokens": 131_072,
        "async_scheduling": True,
    }
    first = serve(long_prompts, PREFILL_FIRST, **settings).report
    report = serve(long_prompts, interleave(1, 1), **settings).report
    assert report.itl_ms.p99 <= chunk * 0.05 + 2 * 10
    assert report.output_tokens_per_s >= 0.97 * first.output_tokens_per_s
    assert first.itl_ms.max >= 8000 * 0.05


@pytest.mark.parametrize(("prefills", "decodes"), POLICIES)
def test_no_token_waits_longer_than_the_setting_says(long_prompts, prefills, decodes):
    report = serve(long_prompts, interleave(prefills, decodes), max_num_batched_tokens=1024, kv_tokens=131_072).report
    assert report.itl_ms.max <= prefills * 1024 * 0.05 + 10
