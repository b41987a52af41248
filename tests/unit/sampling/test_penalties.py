import numpy as np
import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.ops.penalties import apply_all_penalties

from vllm_tt.sampling.penalties import PenalisedRows, is_penalised

VOCAB = 200
ASKED = [
    {"presence_penalty": 0.7},
    {"frequency_penalty": -1.3},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "frequency_penalty": 0.1},
    {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.7},
]


def by_vllm(states, logits):
    def column(name):
        return torch.tensor([getattr(state.sampling_params, name) for state in states])

    longest = max(len(state.prompt_token_ids) for state in states)
    prompts = torch.full((len(states), longest), VOCAB)
    for row, state in enumerate(states):
        prompts[row, : len(state.prompt_token_ids)] = torch.tensor(state.prompt_token_ids).clamp(max=VOCAB)
    return apply_all_penalties(
        logits.clone(),
        prompts,
        column("presence_penalty"),
        column("frequency_penalty"),
        column("repetition_penalty"),
        [state.output_token_ids for state in states],
    )


def test_logits_are_vllms_to_the_last_bit_as_the_output_grows(state):
    random = np.random.default_rng(8)
    states = [
        state(str(row), SamplingParams(**asked), prompt=random.integers(VOCAB + 2, size=30).tolist())
        for row, asked in enumerate(ASKED)
    ]
    rows = PenalisedRows(VOCAB)
    logits = torch.from_numpy(random.normal(size=(len(states), VOCAB)).astype(np.float32)) * 5
    logits[:, ::9] = float("-inf")
    for added in (0, 1, 1, 5, 40):
        for one in states:
            one.output_token_ids.extend(random.integers(VOCAB, size=added).tolist())
        found = logits.clone()
        for row, penalised in rows.of(states).items():
            penalised.penalise(found.numpy()[row])
        assert torch.equal(found, by_vllm(states, logits))


def test_counts_are_kept_while_a_request_holds_its_slot(state):
    params = SamplingParams(presence_penalty=1.0)
    a, b, plain = state("a", params, slot=0), state("b", params, slot=1), state("plain")
    rows = PenalisedRows(VOCAB)
    first = rows.of([plain, a, b])
    assert sorted(first) == [1, 2]
    rows.of([plain])
    assert rows.of([b, a]) == {0: first[2], 1: first[1]}
    a.slot, a.epoch = -1, 1  # preempted
    again = rows.of([b, a])
    assert again[0] is first[2]
    assert again[1] is not first[1]


def test_a_finished_request_is_forgotten(state):
    one = state("a", SamplingParams(presence_penalty=1.0))
    rows = PenalisedRows(VOCAB)
    first = rows.of([one])[0]
    one.slot = -1
    rows.of([])
    assert rows.of([one])[0] is not first


@pytest.mark.parametrize("asked", ASKED)
def test_any_of_the_three_is_a_penalty(asked):
    assert is_penalised(SamplingParams(**asked))
    assert not is_penalised(SamplingParams())
