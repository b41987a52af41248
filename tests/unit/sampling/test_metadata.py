import pytest
import torch
from probe_config import probe_config
from vllm.sampling_params import SamplingParams

from vllm_tt.sampling.loaded import LoadedProcessors
from vllm_tt.sampling.metadata import build_metadata, forget_impossible

VOCAB = 50


@pytest.fixture
def build(tmp_path):
    processors = LoadedProcessors(probe_config(tmp_path, vocab_size=VOCAB, rows=8))
    return lambda states: build_metadata(states, processors, {}, VOCAB, greedy_top_k=1)


def test_plain_greedy_rows_need_nothing(build, state):
    metadata = build([state("a"), state("b")])
    assert (metadata.all_greedy, metadata.all_random, metadata.no_penalties) == (True, False, True)
    for name in ("temperature", "top_p", "top_k", "max_num_logprobs", "prompt_token_ids", "allowed_token_ids_mask"):
        assert getattr(metadata, name) is None
    assert metadata.generators == metadata.bad_words_token_ids == {}


def test_every_parameter_is_a_column_by_row(build, state):
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
    metadata = build(
        [state("a", SamplingParams(temperature=0, seed=3)), state("b", special), state("c", SamplingParams())]
    )
    assert not metadata.all_greedy
    assert not metadata.all_random
    assert metadata.temperature.tolist() == [0.0, 0.5, 1.0]
    assert metadata.top_k.tolist() == [1, 7, VOCAB]
    assert torch.equal(metadata.top_p, torch.tensor([1.0, 0.9, 1.0]))
    assert torch.equal(metadata.frequency_penalties, torch.tensor([0.0, 0.1, 0.0]))
    assert torch.equal(metadata.presence_penalties, torch.tensor([0.0, 0.2, 0.0]))
    assert torch.equal(metadata.repetition_penalties, torch.tensor([1.0, 1.3, 1.0]))
    assert list(metadata.generators) == [1]
    assert metadata.max_num_logprobs == 3


def test_no_logprobs_and_zero_logprobs_stay_apart(build, state):
    assert build([state("a", SamplingParams(logprobs=None))]).max_num_logprobs is None
    assert build([state("a", SamplingParams(logprobs=0))]).max_num_logprobs == 0
    assert build([state("a", SamplingParams(logprobs=-1))]).max_num_logprobs == VOCAB


def test_allowed_tokens_bind_only_their_row(build, state):
    metadata = build([state("a", SamplingParams(allowed_token_ids=[3, 9])), state("b")])
    assert (~metadata.allowed_token_ids_mask[0]).nonzero().flatten().tolist() == [3, 9]
    assert not metadata.allowed_token_ids_mask[1].any()


def test_generated_tokens_are_shared_not_copied(build, state):
    one = state("a")
    assert build([one]).output_token_ids[0] is one.output_token_ids


def test_allowed_tokens_outside_the_vocabulary_allow_nothing(build, state):
    metadata = build([state("a", SamplingParams(allowed_token_ids=[-1, 3, VOCAB, 10**6]))])
    assert (~metadata.allowed_token_ids_mask[0]).nonzero().flatten().tolist() == [3]


def test_stop_tokens_and_biases_outside_the_vocabulary_are_forgotten():
    params = SamplingParams(min_tokens=2, stop_token_ids=[-1, 7, VOCAB], logit_bias={3: 1.0, VOCAB: 1.0})
    forget_impossible(params, VOCAB)
    assert params.all_stop_token_ids == {7}
    assert params.logit_bias == {3: 1.0}


@pytest.mark.parametrize("words", [None, [[7, VOCAB], [8], [9, 10]]])
def test_bad_words_that_cannot_be_generated_are_left_out(build, state, words):
    params = SamplingParams()
    params._bad_words_token_ids = words  # vLLM's tokenizer fills it in
    assert build([state("a", params)]).bad_words_token_ids == ({0: [[8], [9, 10]]} if words else {})
