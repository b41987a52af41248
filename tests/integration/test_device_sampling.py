"""Device sampling through vLLM's engine: where a request is sampled and what overlaps, and that tokens show neither."""

import re
from contextlib import contextmanager

import pytest
from engine import engine
from mixed_sampling import check_logprobs
from oracle import EOS, VOCAB_SIZE, expected_tokens, write_checkpoint
from oracle_device import SAMPLES, device
from vllm.sampling_params import StructuredOutputsParams

LIMITS = {"max_device_top_k": 32, "max_device_logprobs": 20}
ROW_LOGITS = {"supports_row_logits": True}
PROMPT = list(range(100, 140))
MODES = pytest.mark.parametrize("ahead", [False, True], ids=["sync", "async"])


@pytest.fixture
def serving(checkpoint):
    """``with serving(...) as running``: an engine on a device that samples, with these capabilities."""

    @contextmanager
    def serve(declares=LIMITS, *, contract=1, ahead=True, model=checkpoint, compute="thread", **options):
        options = {"max_model_len": 512, "max_num_seqs": 32, "block_size": 32} | options
        options["additional_config"] = {"tt": {"sample_on_device_mode": "all"}}
        with (
            device(SAMPLES | declares, contract=contract, COMPUTE=compute),
            engine(model, async_scheduling=ahead, **options) as running,
        ):
            yield running
            assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}

    return serve


def record(running):
    return running.worker.get_model().record


def counts(running, family):
    return running.worker.counters().get(family, {})


@MODES
@pytest.mark.parametrize("count", [1, 2, 8])
def test_no_decode_follows_the_last_token_that_a_request_may_have(serving, count, ahead):
    with serving(ahead=ahead) as running:
        running.add("a", PROMPT, max_tokens=count)
        running.run()
        assert running.tokens["a"] == expected_tokens(PROMPT, count)
        assert record(running)["decodes_of_row"].total() == count - 1


@pytest.mark.parametrize(("ahead", "surplus"), [(False, 0), (True, 1)], ids=["sync", "async"])
def test_one_decode_may_follow_a_stop_token(serving, ahead, surplus):
    tokens = expected_tokens(PROMPT, 9)
    with serving(ahead=ahead) as running:
        running.add("a", PROMPT, max_tokens=30, stop_token_ids=[tokens[8]])
        running.run()
        assert running.tokens["a"] == tokens
        assert record(running)["decodes_of_row"].total() == 8 + surplus


@pytest.mark.parametrize(
    ("top_k", "on_device"), [(0, False), (-1, False), (1, True), (32, True), (33, False), (VOCAB_SIZE * 2, False)]
)
def test_a_draw_from_more_tokens_than_the_device_takes_is_the_hosts(serving, top_k, on_device):
    """Rows that take the likeliest token never are, whatever top_k they were sent."""
    with serving() as running:
        running.add("greedy", PROMPT, top_k=top_k)
        running.run()
        assert counts(running, "host_sampling") == {}
        running.add("drawn", PROMPT, temperature=0.7, top_k=top_k)
        running.run()
        assert bool(counts(running, "host_sampling")) is not on_device
        assert list(running.tokens.values()) == [expected_tokens(PROMPT, 16)] * 2


@pytest.mark.parametrize("declares", [LIMITS, LIMITS | ROW_LOGITS], ids=["whole", "split"])
@pytest.mark.parametrize("contract", [1, None])
def test_rows_agree_after_a_request_of_the_hosts(serving, declares, contract):
    """The sampler slept, or had a row's logits taken away; back on the device its state is new."""
    with serving(declares, contract=contract) as running:
        for name in ("before", "after"):
            for number in range(20):
                drawn = {"temperature": 0.9, "top_k": 5} if number % 4 == 0 else {}
                running.add(f"{name} {number}", PROMPT, max_tokens=40, **drawn)
            for _ in range(10):
                running.step()
            if name == "before":
                running.add("host", PROMPT[:7], max_tokens=20, logit_bias={3: 1.0})
        running.run()
        assert running.tokens.pop("host") == expected_tokens(PROMPT[:7], 20)
        assert set(map(tuple, running.tokens.values())) == {tuple(expected_tokens(PROMPT, 40))}
        assert record(running)["sampled_dormant"] == 0
        assert (record(running)["row_logits"] > 0) is (declares is not LIMITS)


@MODES
def test_no_logprobs_and_the_chosen_tokens_alone_are_different(serving, ahead):
    with serving(ahead=ahead) as running:
        running.add("none", PROMPT)
        running.run()
        assert counts(running, "drains") == {}
        assert record(running)["most_unread"] == 2 * ahead
        running.add("some", PROMPT, logprobs=0)
        running.run()
        assert record(running)["steps"]["decode", "host"] == 0
        for name, asked in (("none", None), ("some", 0)):
            assert running.tokens[name] == expected_tokens(PROMPT, 16)
            check_logprobs(asked, running.tokens[name], running.logprobs[name])


PENALTIES = {
    "presence": {"presence_penalty": 0.5},
    "presence, a bonus": {"presence_penalty": -0.5},
    "frequency": {"frequency_penalty": 0.3},
    "frequency, a bonus": {"frequency_penalty": -0.3},
    "repetition": {"repetition_penalty": 1.3},
    "repetition, a bonus": {"repetition_penalty": 0.8},
    "all": {"presence_penalty": 0.3, "frequency_penalty": -0.2, "repetition_penalty": 1.1},
    "none": {},
}


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """The likeliest token is hardly likelier than others, so that a penalty decides."""
    return write_checkpoint(tmp_path_factory.mktemp("flat") / "model", chosen_logit=1.0)


def penalised(running):
    for number, params in enumerate(PENALTIES.values()):
        running.add(str(number), PROMPT[: 5 + number], max_tokens=60, **params)
        running.step()
    running.run()
    return running.tokens


@pytest.fixture(scope="module")
def penalised_by_vllm(flat):
    with engine(flat, max_model_len=512, max_num_seqs=8, block_size=32, async_scheduling=False) as running:
        return penalised(running)


TIGHT = {"max_num_seqs": 8, "num_gpu_blocks_override": 17}


@pytest.mark.parametrize(
    "options",
    [{}, {"contract": None}, {"ahead": False, "compute": "submit"}, TIGHT, {"declares": LIMITS | ROW_LOGITS, **TIGHT}],
    ids=["async", "legacy", "sync", "preempted", "preempted, split"],
)
def test_penalties_on_the_device_count_as_vllm_does(serving, flat, penalised_by_vllm, options):
    with serving(model=flat, **options) as running:
        assert penalised(running) == penalised_by_vllm
        assert record(running)["steps"]["decode", "host"] == 0
    assert len(set(map(tuple, penalised_by_vllm.values()))) == len(PENALTIES)


@MODES
@pytest.mark.parametrize("declares", [LIMITS, LIMITS | ROW_LOGITS], ids=["whole", "split"])
def test_structured_rows_hold_to_their_grammar_beside_rows_of_the_device(serving, declares, ahead):
    """The model likes no token that the grammar allows."""
    with serving(declares, ahead=ahead, skip_tokenizer_init=False, max_num_seqs=12) as running:
        for number in range(24):
            if number % 3 == 0:
                pattern = StructuredOutputsParams(regex="(t40|t41)(t50t51)*")
                pattern._backend = "xgrammar"  # as vLLM's front end settles it
                limits = {"max_tokens": 7, "stop_token_ids": [EOS], "structured_outputs": pattern}
                running.add(f"structured {number}", PROMPT, **limits)
            else:
                running.add(f"plain {number}", PROMPT, max_tokens=30)
            running.step()
        running.run()
        for name, tokens in running.tokens.items():
            if name.startswith("plain"):
                assert tokens == expected_tokens(PROMPT, 30)
            else:
                assert re.fullmatch("(t40|t41)(t50t51)*(t50)?(t2)?", "".join(f"t{token}" for token in tokens)), tokens
        assert (record(running)["row_logits"] > 0) is (declares is not LIMITS)
