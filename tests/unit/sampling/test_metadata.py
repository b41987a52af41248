import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessors

from vllm_tt.sampling.metadata import build_metadata

VOCAB = 50


def build(states):
    return build_metadata(states, LogitsProcessors(), VOCAB)


def test_plain_greedy_rows_need_nothing(state):
    metadata = build([state("a"), state("b")])
    assert (metadata.all_greedy, metadata.all_random, metadata.no_penalties) == (True, False, True)
    for name in ("temperature", "top_p", "top_k", "max_num_logprobs", "prompt_token_ids", "allowed_token_ids_mask"):
        assert getattr(metadata, name) is None
    assert metadata.generators == metadata.bad_words_token_ids == {}


def test_every_parameter_is_a_column_by_row(state):
    special = SamplingParams(
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        frequency_penalty=0.1,
        presence_penalty=0.2,
        repetition_penalty=1.3,
        seed=11,
        logprobs=3,
    )
    metadata = build([state("a"), state("b", special, prompt=[4, 5])])
    assert not metadata.all_greedy
    assert not metadata.all_random
    assert metadata.temperature.tolist() == [0.0, 0.5]
    assert metadata.top_k.tolist() == [VOCAB, 7]
    assert torch.allclose(metadata.top_p, torch.tensor([1.0, 0.9]))
    assert torch.allclose(metadata.frequency_penalties, torch.tensor([0.0, 0.1]))
    assert torch.allclose(metadata.presence_penalties, torch.tensor([0.0, 0.2]))
    assert torch.allclose(metadata.repetition_penalties, torch.tensor([1.0, 1.3]))
    assert metadata.prompt_token_ids.tolist() == [[1, 2, 3], [4, 5, VOCAB]]
    assert list(metadata.generators) == [1]
    assert metadata.max_num_logprobs == 3


def test_no_logprobs_and_zero_logprobs_stay_apart(state):
    assert build([state("a", SamplingParams(logprobs=None))]).max_num_logprobs is None
    assert build([state("a", SamplingParams(logprobs=0))]).max_num_logprobs == 0
    assert build([state("a", SamplingParams(logprobs=-1))]).max_num_logprobs == VOCAB


def test_allowed_tokens_bind_only_their_row(state):
    metadata = build([state("a", SamplingParams(allowed_token_ids=[3, 9])), state("b")])
    assert (~metadata.allowed_token_ids_mask[0]).nonzero().flatten().tolist() == [3, 9]
    assert not metadata.allowed_token_ids_mask[1].any()


def test_generated_tokens_are_shared_not_copied(state):
    one = state("a")
    assert build([one]).output_token_ids[0] is one.output_token_ids


def test_allowed_tokens_outside_the_vocabulary_allow_nothing(state):
    metadata = build([state("a", SamplingParams(allowed_token_ids=[-1, 3, VOCAB, 10**6]))])
    assert (~metadata.allowed_token_ids_mask[0]).nonzero().flatten().tolist() == [3]


def test_prompt_tokens_outside_the_vocabulary_count_as_padding(state):
    special = SamplingParams(repetition_penalty=1.3)
    metadata = build([state("a", special, prompt=[4, VOCAB, 10**6]), state("b", prompt=[5])])
    assert metadata.prompt_token_ids.tolist() == [[4, VOCAB, VOCAB], [5, VOCAB, VOCAB]]


def test_stop_tokens_and_biases_outside_the_vocabulary_are_forgotten(state):
    params = SamplingParams(min_tokens=2, stop_token_ids=[-1, 7, VOCAB], logit_bias={3: 1.0, VOCAB: 1.0})
    build([state("a", params)])
    assert params.all_stop_token_ids == {7}
    assert params.logit_bias == {3: 1.0}


@pytest.mark.parametrize("words", [None, [[7, VOCAB], [8], [9, 10]]])
def test_bad_words_that_cannot_be_generated_are_left_out(state, words):
    params = SamplingParams()
    params._bad_words_token_ids = words  # vLLM's tokenizer fills it in
    assert build([state("a", params)]).bad_words_token_ids == ({0: [[8], [9, 10]]} if words else {})
