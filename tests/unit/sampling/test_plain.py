import pytest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from vllm_tt.sampling.plain import is_plain, min_tokens

ASKED = [
    {"temperature": 0.5},
    {"logprobs": 0},
    {"presence_penalty": 0.1},
    {"logit_bias": {1: 1.0}},
    {"allowed_token_ids": [1]},
    {"structured_outputs": StructuredOutputsParams(regex="a")},
    {"thinking_token_budget": 5},
    {"logprob_token_ids": [3], "logprobs": 1},
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked)))
def test_a_row_that_asks_for_something_is_not_plain(asked):
    assert not is_plain(SamplingParams(**{"temperature": 0.0} | asked))


def test_bad_words_are_something():
    params = SamplingParams(temperature=0)
    params._bad_words_token_ids = [[3]]  # vLLM's tokenizer fills it in
    assert not is_plain(params)


def test_a_row_is_plain_whatever_concerns_its_text_alone():
    assert is_plain(SamplingParams(temperature=0, seed=3, stop=["x"], stop_token_ids=[4], min_tokens=3, max_tokens=9))


def test_min_tokens_hold_where_a_token_stops():
    assert min_tokens(SamplingParams(min_tokens=3)) == 0
    assert min_tokens(SamplingParams(min_tokens=3, stop_token_ids=[4])) == 3
