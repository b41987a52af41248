import pytest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from vllm_tt.batch.sampling_rows import NO_LOGPROBS, SamplingRows
from vllm_tt.config import TTConfig
from vllm_tt.contract import Capabilities
from vllm_tt.sampling.policy import DeviceLimits, Reason, Where, decide
from vllm_tt.scheduler.plan import Phase, StepPlan

VOCAB_SIZE = 1000
PROMPT_LEN = 4
SAMPLES = Capabilities(supports_sample_on_device=True)
SPLITS = Capabilities(supports_sample_on_device=True, supports_row_logits=True)
PLAIN = SamplingParams(temperature=0)


def limits(capabilities=SAMPLES, mode="all", *, chips=1, always=False, **more):
    options = TTConfig(sample_on_device_mode=mode, always_compat_sampling=always)
    served = {"model_type": "llama", "logprobs_mode": "raw_logprobs", "custom_processors": False}
    return DeviceLimits.of(capabilities, options, chips_per_lane=chips, **served | more)


def rows_of(*params):
    rows = SamplingRows(8, VOCAB_SIZE)
    for slot, one in enumerate(params):
        rows.bind(slot, one, PROMPT_LEN)
    return rows


def decode(count, generated=1):
    end = PROMPT_LEN + generated
    return StepPlan.build(Phase.DECODE, [(f"r{i}", i, end - 1, end, False) for i in range(count)])


def prefill(*rows):
    """(end, intermediate) for each row."""
    return StepPlan.build(Phase.PREFILL, [(f"r{i}", i, 0, end, part) for i, (end, part) in enumerate(rows)])


def params(**given):
    return SamplingParams(**{"temperature": 0} | given)


def bad_words():
    one = params()
    one._bad_words_token_ids = [[3]]
    return one


ON_HOST = [
    (params(logprobs=0), Reason.LOGPROBS),
    (params(logprobs=5), Reason.LOGPROBS),
    (params(logprob_token_ids=[1]), Reason.LOGPROBS),
    (params(temperature=1, min_p=0.1), Reason.MIN_P),
    (bad_words(), Reason.BAD_WORDS),
    (params(allowed_token_ids=[1, 2]), Reason.ALLOWED_TOKENS),
    (params(logit_bias={1: 2.0}), Reason.LOGIT_BIAS),
    (params(min_tokens=3, stop_token_ids=[7]), Reason.MIN_TOKENS),
    (params(structured_outputs=StructuredOutputsParams(regex="a+")), Reason.GRAMMAR),
    (params(thinking_token_budget=4), Reason.THINKING_BUDGET),
    (params(temperature=1, seed=4), Reason.SEED),
]
ON_DEVICE = [
    PLAIN,
    params(temperature=0.7),
    params(temperature=1, top_k=128_256, top_p=0.9),
    params(seed=4),
    params(presence_penalty=1),
    params(repetition_penalty=1.1),
    params(min_tokens=3),
    params(stop=["x"]),
    params(stop_token_ids=[7]),
]


@pytest.mark.parametrize("one", ON_DEVICE, ids=str)
def test_the_device_samples_what_it_can(one):
    assert decide(decode(2), rows_of(PLAIN, one), limits()) == Where(device=True)


@pytest.mark.parametrize(("one", "reason"), ON_HOST, ids=lambda value: getattr(value, "name", "row"))
def test_one_row_sends_the_batch_to_the_host_and_says_why(one, reason):
    decided = decide(decode(3), rows_of(PLAIN, one, PLAIN), limits())
    assert decided == Where(device=False, host_rows=(0, 1, 2), reasons=(reason,))


@pytest.mark.parametrize(("one", "reason"), ON_HOST, ids=lambda value: getattr(value, "name", "row"))
def test_with_row_logits_it_goes_alone(one, reason):
    decided = decide(decode(3), rows_of(PLAIN, one, PLAIN), limits(SPLITS))
    assert decided == Where(device=True, host_rows=(1,), reasons=(reason,))


def test_a_batch_of_special_rows_needs_no_device():
    decided = decide(decode(2), rows_of(params(logprobs=1), params(logit_bias={1: 1.0})), limits(SPLITS))
    assert decided == Where(device=False, host_rows=(0, 1), reasons=(Reason.LOGIT_BIAS, Reason.LOGPROBS))


@pytest.mark.parametrize(("generated", "device"), [(1, False), (2, False), (3, True), (4, True)])
def test_min_tokens_goes_back_to_the_device_once_it_is_reached(generated, device):
    rows = rows_of(params(min_tokens=3, stop_token_ids=[7]))
    assert decide(decode(1, generated), rows, limits()).device is device


@pytest.mark.parametrize(
    ("top_k", "device"), [(1, True), (32, True), (33, False), (0, False), (-1, False), (128_256, False)]
)
def test_a_declared_top_k_bounds_the_rows_that_draw(top_k, device):
    bounded = limits(Capabilities(supports_sample_on_device=True, max_device_top_k=32))
    assert decide(decode(1), rows_of(params(temperature=1, top_k=top_k)), bounded).device is device
    assert decide(decode(1), rows_of(PLAIN), bounded).device


@pytest.mark.parametrize("one", [params(presence_penalty=1), params(frequency_penalty=1), params(repetition_penalty=2)])
def test_penalties_stay_on_the_host_where_the_device_has_none(one):
    without = limits(Capabilities(supports_sample_on_device=True, supports_device_penalties=False))
    assert decide(decode(1), rows_of(one), without).reasons == (Reason.PENALTIES,)


def test_penalties_of_a_resumed_prompt_are_the_hosts():
    rows = rows_of(params(presence_penalty=1))
    assert decide(prefill((PROMPT_LEN, False)), rows, limits()) == Where(device=True)
    assert decide(prefill((PROMPT_LEN + 3, False)), rows, limits()).reasons == (Reason.PENALTIES,)


SEEDS = {"supports_sample_on_device": True, "supports_device_seeds": True}


@pytest.mark.parametrize(
    ("capabilities", "mode", "device"),
    [
        (Capabilities(**SEEDS, supports_row_logits=True), "all", True),
        # Preempted, it would draw its next token on the host.
        (Capabilities(**SEEDS, supports_row_logits=True), "decode_only", False),
        # A neighbour would send it to the host for a step.
        (Capabilities(**SEEDS), "all", False),
        (SPLITS, "all", False),
    ],
)
def test_a_seeded_draw_is_the_devices_only_where_all_of_them_are(capabilities, mode, device):
    rows = rows_of(PLAIN, params(temperature=1, seed=4))
    assert decide(decode(2), rows, limits(capabilities, mode)).host_rows == (
        () if device else (1,) if capabilities.supports_row_logits else (0, 1)
    )


def test_a_penalised_seeded_draw_is_always_the_hosts():
    exact = limits(Capabilities(**SEEDS, supports_row_logits=True))
    rows = rows_of(PLAIN, params(temperature=1, seed=4, presence_penalty=1))
    for plan in (decode(2), prefill((4, False), (4, False))):
        assert decide(plan, rows, exact) == Where(device=True, host_rows=(1,), reasons=(Reason.SEED,))


@pytest.mark.parametrize(
    ("declared", "chips", "more", "most", "most_drawn"),
    [
        (None, 1, {}, NO_LOGPROBS, NO_LOGPROBS),
        (None, 4, {}, NO_LOGPROBS, NO_LOGPROBS),
        (None, 8, {}, 1, 0),
        (None, 32, {}, 1, 0),
        (None, 8, {"model_type": "gpt_oss"}, 20, 20),
        (None, 1, {"model_type": "gpt_oss"}, NO_LOGPROBS, NO_LOGPROBS),
        (5, 1, {}, 5, 5),
        (5, 1, {"logprobs_mode": "processed_logprobs"}, NO_LOGPROBS, NO_LOGPROBS),
    ],
)
def test_logprobs_are_the_devices_as_far_as_it_has_them(declared, chips, more, most, most_drawn):
    capabilities = Capabilities(supports_sample_on_device=True, max_device_logprobs=declared)
    served = limits(capabilities, chips=chips, **more)

    def on_device(**given):
        return [n for n in (0, 1, 5, 20) if decide(decode(1), rows_of(params(logprobs=n, **given)), served).device]

    assert max(on_device(), default=NO_LOGPROBS) == most
    assert max(on_device(temperature=1, top_k=4), default=NO_LOGPROBS) == most_drawn
    assert decide(decode(1), rows_of(PLAIN), served).device


def test_a_draw_from_more_tokens_than_are_listed_may_miss_its_logprob():
    served = limits(Capabilities(supports_sample_on_device=True, max_device_logprobs=20))
    for asked in (params(temperature=1, top_k=50, logprobs=5), params(presence_penalty=1, logprobs=5)):
        assert decide(decode(1), rows_of(asked), served).reasons == (Reason.LOGPROBS,)


@pytest.mark.parametrize(
    ("served", "plan", "expected"),
    [
        (limits(mode=None), decode(2), Where(device=False, host_rows=(0, 1))),
        (limits(Capabilities()), decode(2), Where(device=False, host_rows=(0, 1))),
        (limits(always=True), decode(1), Where(device=False, host_rows=(0,), reasons=(Reason.ALWAYS,))),
        (
            limits(custom_processors=True),
            decode(1),
            Where(device=False, host_rows=(0,), reasons=(Reason.PROCESSORS,)),
        ),
        (limits(mode="decode_only"), decode(1), Where(device=True)),
        (
            limits(mode="decode_only"),
            prefill((4, False)),
            Where(device=False, host_rows=(0,), reasons=(Reason.PREFILL,)),
        ),
        (limits(), prefill((4, False), (4, False)), Where(device=True)),
        (
            limits(),
            prefill((4, False), (2, True)),
            Where(device=False, host_rows=(0,), reasons=(Reason.INTERMEDIATE,)),
        ),
        (limits(SPLITS), prefill((4, False), (2, True)), Where(device=True)),
        (limits(SPLITS), prefill((2, True)), Where(device=False)),
        (limits(), prefill((2, True)), Where(device=False)),
    ],
)
def test_the_step_as_a_whole(served, plan, expected):
    assert decide(plan, rows_of(PLAIN, PLAIN), served) == expected


def test_an_intermediate_chunk_of_a_special_row_asks_nothing():
    rows = rows_of(PLAIN, params(logprobs=5))
    assert decide(prefill((4, False), (2, True)), rows, limits(SPLITS)) == Where(device=True)
