"""The rows of a call: against vLLM's sampler on the same logits, and each for itself."""

from dataclasses import replace

import pytest
import torch
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.host.row_params import RowParams
from vllm_tt.host.sampler import Computed, HostDeviceSampler

VOCAB = 64
PLAIN = RowParams.of(DeviceSamplingParams.greedy(1))[0]
RANDOM = replace(PLAIN, temperature=2.0, top_k=VOCAB)


def logits_of(rows, seed=0):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def sampler_of(*rows, prompts=None, outputs=None, max_logprobs=20):
    sampler = HostDeviceSampler(VOCAB, max_logprobs)
    sampler.load(rows)
    sampler.reset(prompts, outputs)
    return sampler


def sample(sampler, logits, rows=None, positions=None, logits_rows=None):
    rows = list(range(len(logits))) if rows is None else rows
    positions = [9] * len(logits) if positions is None else positions
    return sampler.sample(Computed(rows=rows, logits=logits, positions=positions), logits_rows)


def by_vllm(logits, rows, prompts, outputs, num_logprobs):
    """vLLM's tokens and logprobs of rows that take the likeliest token."""
    metadata = SamplingMetadata(
        temperature=None,
        all_greedy=True,
        all_random=False,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=num_logprobs,
        no_penalties=False,
        prompt_token_ids=torch.where(prompts < 0, VOCAB, prompts).long(),
        frequency_penalties=torch.tensor([row.frequency_penalty for row in rows]),
        presence_penalties=torch.tensor([row.presence_penalty for row in rows]),
        repetition_penalties=torch.tensor([row.repetition_penalty for row in rows]),
        output_token_ids=outputs,
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )
    return Sampler()(logits.clone(), metadata)


def test_tokens_and_logprobs_of_likeliest_rows_are_vllms_step_after_step():
    rows = [
        PLAIN,
        replace(PLAIN, presence_penalty=2.0, wants_logprobs=True),
        replace(PLAIN, frequency_penalty=0.9),
        replace(PLAIN, repetition_penalty=1.8, wants_logprobs=True),
        replace(PLAIN, presence_penalty=-1.0, frequency_penalty=0.5, repetition_penalty=0.7),
    ]
    prompts = torch.randint(0, VOCAB, (5, 12), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    prompts[2, 5:] = -1
    outputs = [[4], [5], [6], [7], [8]]
    sampler = sampler_of(*rows, prompts=prompts, outputs=torch.tensor(outputs, dtype=torch.int32), max_logprobs=6)
    chosen = set()
    for _ in range(8):
        logits = logits_of(5)  # the same every time: only penalties make a row go on to another token
        expected = by_vllm(logits, rows, prompts, outputs, 6)
        found = sample(sampler, logits.clone())
        assert found.tokens.tolist() == expected.sampled_token_ids.view(-1).tolist()
        logprobs, indices = found.logprobs
        for row in (1, 3):
            assert torch.equal(logprobs[row], expected.logprobs_tensors.logprobs[row, 1:])
            assert torch.equal(indices[row], expected.logprobs_tensors.logprob_token_ids[row, 1:])
        assert not logprobs[[0, 2, 4]].any()
        for history, token in zip(outputs, found.tokens.tolist(), strict=True):
            history.append(token)
        chosen.add(tuple(found.tokens.tolist()))
    assert len(chosen) > 3


def test_a_row_is_sampled_alike_alone_and_anywhere_in_a_batch():
    logits = logits_of(6)
    rows = [
        replace(RANDOM, seed=1),
        replace(RANDOM, seed=1, top_k=9),
        PLAIN,
        replace(RANDOM, seed=2, top_p=0.8),
        replace(RANDOM, seed=2**32 - 1, repetition_penalty=1.5),
        replace(PLAIN, presence_penalty=1.0),
    ]
    histories = torch.arange(24, dtype=torch.int32).view(6, 4)
    alone = []
    for i, row in enumerate(rows):
        one = sampler_of(row, prompts=histories[i : i + 1], outputs=histories[i : i + 1])
        alone.append(sample(one, logits[i : i + 1], positions=[50 + i]).tokens.item())
    for seed in range(20):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(seed)).tolist()
        sampler = sampler_of(*(rows[i] for i in order), prompts=histories[order], outputs=histories[order])
        found = sample(sampler, logits[order], positions=[50 + i for i in order])
        assert found.tokens.tolist() == [alone[i] for i in order]


def test_rows_without_a_seed_do_not_repeat():
    sampler = sampler_of(RANDOM)
    assert len({sample(sampler, logits_of(1)).tokens.item() for _ in range(50)}) > 5


def test_plain_rows_take_the_first_of_the_likeliest_tokens():
    logits = torch.zeros(1, VOCAB)
    logits[0, [9, 40]] = 1.0
    assert sample(sampler_of(PLAIN), logits).tokens.tolist() == [9]


def test_rows_that_were_not_computed_have_no_token_and_count_none():
    rows = [replace(PLAIN, presence_penalty=99.0)] * 4
    sampler = sampler_of(*rows)
    logits = torch.zeros(2, VOCAB)
    logits[:, 5] = 1.0
    first = sample(sampler, logits, rows=[1, 3])
    assert (first.tokens.tolist(), first.tokens.dtype) == ([0, 5, 0, 5], torch.int32)
    assert sample(sampler, torch.cat([logits, logits]), rows=[0, 1, 2, 3]).tokens.tolist() == [5, 0, 5, 0]


def test_rows_that_the_host_samples_get_logits_and_count_nothing():
    sampler = sampler_of(*[replace(PLAIN, presence_penalty=99.0)] * 3)
    logits = torch.zeros(2, VOCAB)
    logits[:, 5] = torch.tensor([1.0, 2.0])
    found = sample(sampler, logits, rows=[0, 2], logits_rows=[2])
    assert torch.equal(found.logits, logits[1:])
    assert sample(sampler, logits, rows=[0, 2]).tokens.tolist() == [0, 0, 5]


def test_new_parameters_leave_the_counts_and_a_reset_takes_them():
    penalised = replace(PLAIN, presence_penalty=99.0)
    sampler = sampler_of(penalised)
    logits = torch.zeros(1, VOCAB)
    logits[0, 5], logits[0, 6] = 2.0, 1.0
    assert sample(sampler, logits).tokens.item() == 5
    sampler.load([replace(penalised, presence_penalty=98.0)])
    assert sample(sampler, logits).tokens.item() == 6
    sampler.reset()
    assert sample(sampler, logits).tokens.item() == 5
    sampler.load([PLAIN])
    assert sample(sampler, logits).tokens.item() == 5


def test_logprobs_are_of_the_logits_as_they_come():
    row = replace(RANDOM, seed=4, presence_penalty=2.0, wants_logprobs=True)
    seen = torch.arange(VOCAB, dtype=torch.int32)[None]
    logits = logits_of(1)
    logprobs, indices = sample(sampler_of(row, prompts=seen, outputs=seen, max_logprobs=3), logits).logprobs
    expected = logits.log_softmax(-1).topk(3)
    assert torch.equal(logprobs, expected.values)
    assert torch.equal(indices.long(), expected.indices)


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("logits_rows", [None, [0]])
def test_forms_that_a_call_returns(wants, logits_rows):
    found = sample(sampler_of(replace(PLAIN, wants_logprobs=wants)), logits_of(1), logits_rows=logits_rows)
    if logits_rows:
        tokens, logprobs, logits = found.returned()
        assert logits.shape == (1, VOCAB)
    else:
        tokens, logprobs = found.returned() if wants else (found.returned(), None)
    assert tokens.shape == (1,)
    assert (logprobs is not None) is wants
    if wants:
        assert [part.shape for part in logprobs] == [(1, 20), (1, 20)]


def test_a_small_vocabulary_has_no_more_logprobs_than_tokens():
    sampler = HostDeviceSampler(4, 20)
    sampler.load([replace(PLAIN, wants_logprobs=True)])
    sampler.reset()
    logprobs, _ = sampler.sample(Computed(rows=[0], logits=torch.zeros(1, 4), positions=[1])).logprobs
    assert logprobs.shape == (1, 4)


@pytest.mark.parametrize(
    ("row", "random", "penalised"),
    [
        (PLAIN, False, False),
        (replace(PLAIN, temperature=9e-6), False, False),
        (replace(PLAIN, temperature=1e-5), True, False),
        (replace(PLAIN, presence_penalty=-0.1), False, True),
        (replace(PLAIN, frequency_penalty=0.1), False, True),
        (replace(PLAIN, repetition_penalty=0.9), False, True),
    ],
)
def test_what_rows_are(row, random, penalised):
    assert (row.is_random, row.is_penalised) == (random, penalised)
