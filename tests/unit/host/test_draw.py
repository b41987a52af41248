"""Draws against what vLLM's sampler leaves to draw from, and how often each token comes."""

import numpy as np
import pytest
import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.host.draw import draw, kept
from vllm_tt.host.row_params import RowParams

VOCAB = 40
LIMITS = [(VOCAB, 1.0), (5, 1.0), (1, 1.0), (VOCAB, 0.6), (VOCAB, 1e-9), (12, 0.8), (3, 0.999), (VOCAB, 0.9999)]


def scores(seed=0, vocab=VOCAB):
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 2


def params(*, temperature=1.0, top_k=VOCAB, top_p=1.0, seed=None):
    greedy = DeviceSamplingParams.greedy(1)
    greedy.temperature[0], greedy.top_k[0], greedy.top_p[0], greedy.seed[0] = temperature, top_k, top_p, seed
    return RowParams.of(greedy)[0]


def left_by_vllm(row, top_k, top_p):
    """vLLM's scores with -inf for what it leaves out."""
    k = None if top_k == len(row) else torch.tensor([top_k])
    p = None if top_p == 1.0 else torch.tensor([top_p])
    return apply_top_k_top_p_pytorch(row[None].clone(), k, p, allow_cpu_sync=True)[0]


@pytest.mark.parametrize(("top_k", "top_p"), LIMITS)
@pytest.mark.parametrize("vocab", [VOCAB, 2000, 9000])
def test_the_tokens_left_are_those_that_vllm_leaves(top_k, top_p, vocab):
    for seed in range(10):
        row = scores(seed, vocab)
        limit = vocab if top_k == VOCAB else top_k
        expected = left_by_vllm(row, limit, top_p).isfinite().nonzero().flatten().tolist()
        assert sorted(kept(row, limit, top_p).tolist()) == expected


def test_tokens_as_likely_as_the_last_of_top_k_stay():
    row = torch.tensor([0.0, 3.0, 1.0, 1.0, 1.0, -2.0])
    assert kept(row, 2, 1.0).tolist() == [1, 2, 3, 4]
    assert left_by_vllm(row, 2, 1.0).isfinite().nonzero().flatten().tolist() == [1, 2, 3, 4]


def chi_square(drawn, chances):
    """How far counts of ``drawn`` are from ``chances``, as a normal deviate (Wilson and Hilferty)."""
    expected = chances.double() * len(drawn)
    counts = torch.bincount(torch.tensor(drawn), minlength=len(chances)).double()
    assert not counts[expected == 0].any()
    often = expected >= 5
    rest = expected[~often].sum(), counts[~often].sum()
    parts = (counts[often] - expected[often]) ** 2 / expected[often]
    statistic = float(parts.sum() + ((rest[1] - rest[0]) ** 2 / rest[0] if rest[0] >= 5 else 0))
    freedom = int(often.sum()) + int(rest[0] >= 5) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


@pytest.mark.parametrize("seed", [None, 0, 7, 2**32 - 1])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, VOCAB, 1.0), (0.5, 6, 1.0), (2.0, 30, 0.9), (1.3, VOCAB, 0.7)]
)
def test_tokens_come_as_often_as_they_should(temperature, top_k, top_p, seed):
    torch.manual_seed(3)
    row = scores(1)
    chances = left_by_vllm(row / temperature, top_k, top_p).softmax(-1)
    chosen = params(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    drawn = [draw(row, chosen, position) for position in range(4_000)]
    assert chi_square(drawn, chances) < 4


def test_over_seeds_at_one_position_too():
    row = scores(2)
    drawn = [draw(row, params(seed=seed), 11) for seed in range(4_000)]
    assert chi_square(drawn, row.softmax(-1)) < 4


def test_an_unlikely_token_of_a_large_vocabulary_does_not_win_by_rounding():
    row = torch.full((150_000,), -60.0)
    row[77] = 0.0
    torch.manual_seed(0)
    assert {draw(row, params(top_k=150_000), 0) for _ in range(200)} == {77}


def test_a_seeded_draw_depends_on_nothing_else():
    row, chosen = scores(), params(temperature=3.0, seed=123)
    first = [draw(row, chosen, position) for position in range(50)]
    torch.manual_seed(9)
    np.random.seed(9)
    assert [draw(row.clone(), chosen, position) for position in reversed(range(50))] == first[::-1]
    assert len(set(first)) > 10


def test_draws_of_seeds_and_positions_are_unrelated():
    row = torch.zeros(1000)
    one, other = ([draw(row, params(top_k=1000, seed=seed), p) for p in range(200)] for seed in (1, 2))
    same = sum(a == b for a, b in zip(one, other, strict=True))
    shifted = sum(a == b for a, b in zip(one[1:], other, strict=False))
    assert same + shifted < 6
