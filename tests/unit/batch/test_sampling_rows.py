import numpy as np
import pytest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from vllm_tt.batch.sampling_rows import NO_LOGPROBS, Control, SamplingRows

COLUMNS = (
    "controls",
    "temperature",
    "top_k",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "num_logprobs",
    "prompt_len",
    "min_end",
)
NEUTRAL = dict(zip(COLUMNS, (0, 0.0, 1, 1.0, 0.0, 0.0, 1.0, 0, NO_LOGPROBS, 0, 0), strict=True))


def row(rows, slot):
    return {name: getattr(rows, name)[slot].item() for name in COLUMNS}


def bound(prompt_len=5, **params):
    rows = SamplingRows(3, vocab_size=100)
    rows.bind(1, SamplingParams(**params), prompt_len)
    return rows


def test_a_free_slot_takes_the_likeliest_token():
    rows = SamplingRows(2, vocab_size=100)
    assert [row(rows, 0), row(rows, 1)] == [NEUTRAL, NEUTRAL]


@pytest.mark.parametrize(
    ("params", "changed"),
    [
        ({"temperature": 0}, {}),
        # What only a draw looks at does not count for a row that draws nothing.
        ({"temperature": 0, "top_k": 7, "top_p": 0.5, "min_p": 0.2, "seed": 3}, {}),
        ({"temperature": 0.5}, {"temperature": 0.5, "top_k": 100}),
        ({"temperature": 1, "top_k": -1}, {"temperature": 1.0, "top_k": 100}),
        ({"temperature": 1, "top_k": 128_256}, {"temperature": 1.0, "top_k": 100}),
        ({"temperature": 1, "top_k": 33, "top_p": 0.25}, {"temperature": 1.0, "top_k": 33, "top_p": 0.25}),
        ({"temperature": 0, "logprobs": 0}, {"num_logprobs": 0}),
        ({"temperature": 0, "logprobs": 5}, {"num_logprobs": 5}),
        ({"temperature": 0, "logprobs": -1}, {"num_logprobs": 100}),
        ({"temperature": 0, "min_tokens": 4, "stop_token_ids": [9]}, {"min_end": 9}),
        ({"temperature": 0, "min_tokens": 4}, {}),
        ({"temperature": 0, "presence_penalty": 0.5}, {"presence_penalty": 0.5, "controls": Control.PENALTIES}),
        ({"temperature": 0, "repetition_penalty": 1.5}, {"repetition_penalty": 1.5, "controls": Control.PENALTIES}),
        ({"temperature": 0, "logit_bias": {3: 1.0}}, {"controls": Control.LOGIT_BIAS}),
        ({"temperature": 0, "allowed_token_ids": [3]}, {"controls": Control.ALLOWED_TOKENS}),
        ({"temperature": 0, "logprob_token_ids": [3]}, {"controls": Control.LOGPROBS_OF_TOKENS}),
        ({"temperature": 0, "thinking_token_budget": 3}, {"controls": Control.THINKING_BUDGET}),
        (
            {"temperature": 0, "structured_outputs": StructuredOutputsParams(json="{}")},
            {"controls": Control.GRAMMAR},
        ),
        ({"temperature": 1, "min_p": 0.25}, {"temperature": 1.0, "top_k": 100, "controls": Control.MIN_P}),
        (
            {"temperature": 1, "seed": -(2**63)},
            {"temperature": 1.0, "top_k": 100, "seed": -(2**63), "controls": Control.SEED},
        ),
        ({"temperature": 1, "seed": 0}, {"temperature": 1.0, "top_k": 100, "controls": Control.SEED}),
        (
            {"temperature": 1, "seed": 2**64 + 5},
            {"temperature": 1.0, "top_k": 100, "seed": 5, "controls": Control.SEED},
        ),
    ],
    ids=str,
)
def test_a_request_fills_its_row_until_it_is_cleared(params, changed):
    rows = bound(**params)
    assert row(rows, 1) == NEUTRAL | {"prompt_len": 5} | changed
    assert row(rows, 0) == row(rows, 2) == NEUTRAL
    rows.clear(1)
    assert row(rows, 1) == NEUTRAL


def test_bad_words_count_as_tokens():
    params = SamplingParams(temperature=0)
    params._bad_words_token_ids = [[3]]
    rows = SamplingRows(1, vocab_size=100)
    rows.bind(0, params, 5)
    assert rows.controls.tolist() == [Control.BAD_WORDS]
    assert rows.temperature.dtype == np.float32
