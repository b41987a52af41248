import pytest
import torch
from vllm.v1.sample.ops.penalties import apply_all_penalties

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.host.history import History
from vllm_tt.host.row_params import RowParams

VOCAB = 50
PROMPTS = [[3, 3, 7, 49], [], [0, 12, 12, 30, 31, 32]]
OUTPUTS = [[7, 8, 8, 8], [1, 2, 1], []]


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.int32)


def params(presence=0.0, frequency=0.0, repetition=1.0):
    one = DeviceSamplingParams.greedy(1)
    one.presence_penalty[0], one.frequency_penalty[0], one.repetition_penalty[0] = presence, frequency, repetition
    return RowParams.of(one)[0]


def expected(logits, prompts, outputs, chosen):
    """vLLM's scores of all rows, each with the same penalties."""
    width = max(1, *map(len, prompts))
    prompt = torch.tensor([[*row, *[VOCAB] * (width - len(row))] for row in prompts])
    columns = (chosen.presence_penalty, chosen.frequency_penalty, chosen.repetition_penalty)
    tensors = [torch.full((len(prompts),), value) for value in columns]
    return apply_all_penalties(logits.clone(), prompt, *tensors, [list(row) for row in outputs])


@pytest.mark.parametrize("presence", [0.0, 0.7, -1.3])
@pytest.mark.parametrize("frequency", [0.0, 0.31, -2.0])
@pytest.mark.parametrize("repetition", [1.0, 1.3, 0.6])
def test_scores_are_vllms_to_the_bit(presence, frequency, repetition):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(5)) * 4
    chosen = params(presence, frequency, repetition)
    history = History(3, VOCAB, padded(PROMPTS), padded(OUTPUTS))
    outputs = [list(row) for row in OUTPUTS]
    for tokens in ([8, 1, 30], [8, 9, 31]):
        scores = torch.stack([history.penalised(logits[row], row, chosen) for row in range(3)])
        assert torch.equal(scores, expected(logits, PROMPTS, outputs, chosen))
        history.add([0, 1, 2], torch.tensor(tokens, dtype=torch.int32))
        for row, token in zip(outputs, tokens, strict=True):
            row.append(token)


def test_what_is_no_token_counts_for_nothing():
    logits = torch.ones(1, VOCAB)
    given = torch.tensor([[-1, VOCAB, VOCAB + 5, 4]], dtype=torch.int32)
    scores = History(1, VOCAB, given, given).penalised(logits[0], 0, params(presence=1.0, repetition=2.0))
    assert (scores != 1).nonzero().flatten().tolist() == [4]


def test_without_histories_there_is_only_what_is_added():
    history = History(2, VOCAB)
    history.add([1], torch.tensor([6]))
    rows = [history.penalised(torch.zeros(VOCAB), row, params(presence=1.5)) for row in range(2)]
    assert not rows[0].any()
    assert rows[1].nonzero().flatten().tolist() == [6]
