"""Which phase each step has, through vLLM's engine."""

import re
import threading

import pytest
from engine import engine
from oracle import EOS, expected_tokens
from vllm.sampling_params import StructuredOutputsParams

OPTIONS = {"max_model_len": 1024, "max_num_seqs": 4, "block_size": 32, "async_scheduling": False}


def interleave(enabled=True, prefill_steps=2, decode_steps=1):
    return {
        "tt": {
            "decode_interleave_enabled": enabled,
            "decode_interleave_prefill_steps": prefill_steps,
            "decode_interleave_decode_steps": decode_steps,
        }
    }


def longest_prefill_run(phases):
    return max(map(len, re.findall("P+", phases)), default=0)


def long_prompt(length=512):
    return [16 + i % 400 for i in range(length)]


@pytest.mark.parametrize(("prefill_steps", "decode_steps"), [(1, 1), (2, 1), (2, 3), (4, 1)])
def test_a_decode_waits_at_most_for_the_configured_prefill_steps(checkpoint, prefill_steps, decode_steps):
    policy = interleave(True, prefill_steps, decode_steps)
    with engine(checkpoint, max_num_batched_tokens=64, additional_config=policy, **OPTIONS) as running:
        running.add("decoder", [20, 21], max_tokens=40)
        running.step()
        running.add("prompt", long_prompt(), max_tokens=4)
        while "prompt" not in running.finished:
            running.step()
        assert longest_prefill_run(running.phases[1:]) == prefill_steps
        runs_between = re.findall("(?<=P)D+(?=P)", running.phases[1:])
        assert set(map(len, runs_between)) == {decode_steps}
        running.run()
        assert running.tokens == {
            "decoder": expected_tokens([20, 21], 40),
            "prompt": expected_tokens(long_prompt(), 4),
        }


@pytest.mark.parametrize(("enabled", "longest"), [(True, 2), (False, 9)])
def test_a_new_prompt_every_step_lets_decodes_run_unless_the_policy_is_off(checkpoint, enabled, longest):
    with engine(checkpoint, additional_config=interleave(enabled), **OPTIONS | {"max_num_seqs": 16}) as running:
        running.add("decoder", [20, 21], max_tokens=30)
        running.step()
        for number in range(9):
            running.add(f"prompt{number}", [30 + number, 31], max_tokens=2)
            running.step()
        assert longest_prefill_run(running.phases[1:]) == longest
        running.run()
        assert running.tokens["decoder"] == expected_tokens([20, 21], 30)


def test_a_prefill_that_admits_nothing_becomes_a_decode_in_the_same_step(checkpoint):
    """Eight pages are taken by the first two; the third waits, and an abort of a waiting one is not lost."""
    options = OPTIONS | {"max_model_len": 128, "enable_prefix_caching": False, "num_gpu_blocks_override": 9}
    with engine(checkpoint, **options) as running:
        for name in ("a", "b"):
            running.add(name, long_prompt(97), max_tokens=20)
        running.step()
        running.add("c", long_prompt(97), max_tokens=2)
        running.add("d", long_prompt(97), max_tokens=2)
        running.step()
        running.abort("d", "b")
        running.step()
        assert running.phases[:2] == "PD"
        assert "-" not in running.phases
        assert running.plans[2].released
        running.run()
        assert running.tokens["a"] == expected_tokens(long_prompt(97), 20)
        assert running.tokens["c"] == expected_tokens(long_prompt(97), 2)
        assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}


def test_an_abort_in_a_step_whose_prefill_is_abandoned_reaches_the_worker(checkpoint):
    """vLLM reports finished ids with the first pass of a step; the pass that counts is the second."""
    options = OPTIONS | {"max_model_len": 128, "enable_prefix_caching": False, "num_gpu_blocks_override": 9}
    with engine(checkpoint, **options) as running:
        for name in ("a", "b"):
            running.add(name, long_prompt(97), max_tokens=20)
        running.step()
        running.add("waits", long_prompt(120), max_tokens=2)
        running.step()
        running.abort("b")
        # Four pages are free again and "waits" needs four, yet "a" is about to need its fifth...
        running.step()
        assert running.worker.check()["requests"] <= 2
        running.run()
        assert running.tokens["a"] == expected_tokens(long_prompt(97), 20)
        assert running.tokens["waits"] == expected_tokens(long_prompt(120), 2)


def test_a_last_chunk_of_one_token_is_prefill(checkpoint):
    with engine(checkpoint, max_num_batched_tokens=64, **OPTIONS) as running:
        running.add("a", long_prompt(65), max_tokens=2)
        running.run()
        assert running.phases == "PPD-"
        assert [plan.intermediate.tolist() for plan in running.plans[:2]] == [[True], [False]]
        assert running.tokens["a"] == expected_tokens(long_prompt(65), 2)


def test_partial_prefills_do_not_count_as_running_decodes(checkpoint):
    with engine(checkpoint, max_num_batched_tokens=64, additional_config=interleave(), **OPTIONS) as running:
        running.add("a", long_prompt(), max_tokens=1)
        running.add("b", long_prompt()[::-1], max_tokens=1)
        running.run()
        assert running.phases.rstrip("-") == "P" * 16


def test_a_request_that_waits_for_its_grammar_holds_nobody_up(checkpoint):
    with engine(checkpoint, **OPTIONS | {"skip_tokenizer_init": False}) as running:
        release = threading.Event()
        workers = running.core.structured_output_manager.executor
        for _ in range(workers._max_workers):
            workers.submit(release.wait, 60)
        running.add("decoder", [20, 21], max_tokens=12)
        pattern = StructuredOutputsParams(regex="(t40|t41)t50")
        pattern._backend = "xgrammar"  # as vLLM's front end settles it
        running.add("structured", [22, 23], max_tokens=8, stop_token_ids=[EOS], structured_outputs=pattern)
        for _ in range(6):
            running.step()
        assert running.phases == "PDDDDD"
        assert running.tokens["structured"] == []
        release.set()
        running.run()
        assert running.tokens["decoder"] == expected_tokens([20, 21], 12)
        assert running.tokens["structured"] in ([40, 50, EOS], [41, 50, EOS])


def test_a_row_comes_after_the_row_whose_pages_it_shares(checkpoint):
    """A page counts as cached once a step that fills it is scheduled: a hit may be on a row of the same step."""
    with engine(checkpoint, long_prefill_token_threshold=20, **OPTIONS) as running:
        running.add("first", long_prompt(60), max_tokens=2)
        running.step()
        running.add("second", [*long_prompt(32), 450, 451], max_tokens=2)
        running.step()
        assert running.plans[1].req_ids == ("first", "second")
        assert running.plans[1].starts.tolist() == [20, 32]
        running.run()
        assert running.tokens["first"] == expected_tokens(long_prompt(60), 2)
        assert running.tokens["second"] == expected_tokens([*long_prompt(32), 450, 451], 2)
