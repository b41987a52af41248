import numpy as np
import pytest
import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch, random_sample

from vllm_tt.sampling.draw import Draw

VOCAB = 9000
DRAWS = 10_000


def peaked(generator):
    logits = torch.randn(VOCAB, generator=generator)
    logits[:30] += torch.linspace(9, 3, 30)
    return logits


def flat(generator):
    return torch.randn(VOCAB, generator=generator)


def middling(generator):
    """Some 0.9 of it on more tokens than the first try looks at."""
    logits = torch.randn(VOCAB, generator=generator)
    logits[:700] += 5
    return logits


def coarse(generator):
    """Many tokens tie, and so do those at most k-th places."""
    return torch.randn(VOCAB, generator=generator).mul(2).round()


def few(generator):
    logits = torch.full((VOCAB,), float("-inf"))
    logits[[5, 4000, VOCAB - 1]] = torch.randn(3, generator=generator)
    return logits


LOGITS = [peaked, flat, middling, coarse, few]
LIMITS = [(k, p) for k in (VOCAB, 1, 20, 64, 65, 300, 2048, 5000) for p in (1.0, 0.999, 0.9, 0.3, 0.01)]


def tensors(limits):
    """As vLLM's input batch has them: None where no row is limited."""
    k = torch.tensor([k for k, _ in limits], dtype=torch.int32)
    p = torch.tensor([p for _, p in limits])
    return k if (k < VOCAB).any() else None, p if (p < 1).any() else None


def table(made, rows):
    generator = torch.Generator().manual_seed(6)
    return torch.stack([made(generator) for _ in range(rows)])


@pytest.mark.parametrize("made", LOGITS)
def test_seeded_rows_get_the_tokens_that_vllm_draws(made):
    logits = table(made, len(LIMITS))
    # Which of the tokens that tie at the edge of a nucleus are in it, vLLM's sort leaves open.
    limits = [(k, 1.0 if made is coarse else p) for k, p in LIMITS]
    ours, theirs = ({row: torch.Generator().manual_seed(row) for row in range(len(limits))} for _ in range(2))
    draw = Draw(VOCAB)
    k, p = tensors(limits)
    for _ in range(3):
        expected = random_sample(apply_top_k_top_p_pytorch(logits.clone(), k, p).softmax(1), theirs)
        assert draw(logits.clone(), ours, k, p)[0].tolist() == expected.tolist()


def test_a_seeded_rows_tokens_do_not_depend_on_its_neighbours():
    logits = table(peaked, 4)
    k, p = tensors([(VOCAB, 1.0), (20, 0.9), (VOCAB, 0.9), (5000, 1.0)])
    together = Draw(VOCAB)(logits.clone(), {1: torch.Generator().manual_seed(3)}, k, p)[0]
    alone = Draw(VOCAB)(logits[1:2].clone(), {0: torch.Generator().manual_seed(3)}, k[1:2], p[1:2])[0]
    assert together[1] == alone[0]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_row_without_a_distribution_gets_what_vllm_gives(wrong):
    logits = table(peaked, 3)
    logits[:, 70] = wrong
    k, p = tensors([(VOCAB, 1.0), (20, 0.9), (VOCAB, 0.9)])
    assert Draw(VOCAB)(logits, {}, k, p)[0].tolist() == [0, 0, 0]
    assert Draw(VOCAB)(torch.full((1, VOCAB), float("-inf")), {}, None, None)[0].tolist() == [0]


@pytest.mark.parametrize(
    ("made", "k", "p"),
    [
        (peaked, VOCAB, 1.0),
        (peaked, 20, 1.0),
        (peaked, 20, 0.7),
        (peaked, VOCAB, 0.9),
        (peaked, VOCAB, 0.2),
        (middling, VOCAB, 0.9),
        (coarse, 20, 1.0),
        (few, VOCAB, 1.0),
        (few, VOCAB, 0.6),
    ],
)
def test_rows_without_a_seed_are_drawn_from_vllms_distribution(made, k, p):
    rows = 50
    logits = table(made, 1)
    k, p = (torch.tensor([k]) if k < VOCAB else None), (torch.tensor([p]) if p < 1 else None)
    expected = apply_top_k_top_p_pytorch(logits.clone(), k, p)[0].double().softmax(0).numpy() * DRAWS
    k, p = (None if one is None else one.repeat(rows) for one in (k, p))
    draw, counts = Draw(VOCAB), np.zeros(VOCAB)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        for _ in range(DRAWS // rows):
            counts += np.bincount(draw(logits.repeat(rows, 1), {}, k, p)[0].numpy(), minlength=VOCAB)
    assert (counts[expected == 0] == 0).all()
    common = expected >= 5
    bins = np.append(expected[common], expected[~common].sum())
    found = np.append(counts[common], counts[~common].sum())[bins > 0]
    bins = bins[bins > 0]
    free = max(1, len(bins) - 1)
    assert ((found - bins) ** 2 / bins).sum() < free + 4 * np.sqrt(2 * free)
