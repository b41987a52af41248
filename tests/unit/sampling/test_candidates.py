import numpy as np
import pytest

from vllm_tt.sampling.candidates import likeliest

INF = np.float32(np.inf)
random = np.random.default_rng(3)
ROWS = {
    "spread": random.normal(size=2000),
    "tied": np.round(random.normal(size=2000) * 4) / 4,
    "negative": random.normal(size=2000) - 100,
    "falling": np.arange(2000)[::-1],
    "in the tail": np.r_[np.zeros(1990) + random.normal(size=1990) * 0.1, np.full(10, 9.0)],
    "few possible": np.where(np.isin(np.arange(2000), [5, 700, 1999]), 1.5, -np.inf),
    "signed zeros": np.where(np.arange(2000) % 2, -0.0, 0.0) - (np.arange(2000) > 40),
}


def check(found, row, logits, size):
    """Rising by logit, then by token, padded in front; all tokens that reach the least candidate are in."""
    count = found.counts[row]
    tokens = found.tokens[row, found.tokens.shape[1] - count :]
    values = found.logits[row, found.tokens.shape[1] - count :]
    assert values.tolist() == logits[tokens].tolist()
    assert list(zip(values, tokens, strict=True)) == sorted(zip(values, tokens, strict=True))
    assert (found.logits[row, : found.logits.shape[1] - count] == -INF).all()
    possible = np.flatnonzero(logits > -INF)
    if found.complete[row]:
        assert sorted(tokens) == possible.tolist()
    else:
        assert count >= size
        assert sorted(tokens) == np.flatnonzero(logits >= values[0]).tolist()


@pytest.mark.parametrize("width", [2000, 1999, 1003, 64])
@pytest.mark.parametrize("size", [1, 5, 64, 256, 2048])
def test_candidates_are_all_that_reach_a_value(width, size):
    table = np.stack([row[-width:] for row in ROWS.values()]).astype(np.float32)
    found = likeliest(table, size)
    for row, logits in enumerate(table):
        if found.usable[row]:
            check(found, row, logits, size)
        else:
            assert (logits >= np.sort(logits)[-size]).sum() > size
            assert found.counts[row] == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 999, 1002])
def test_a_row_without_a_finite_maximum_has_none(wrong, at):
    table = np.zeros((3, 1003), dtype=np.float32)
    table[0, at] = wrong
    table[1] = -np.inf
    table[2, :3] = 1.0
    found = likeliest(table, 2)
    assert found.usable.tolist() == [False, False, True]
    assert found.counts.tolist() == [0, 0, 3]


def test_a_row_of_equal_logits_has_too_many():
    assert likeliest(np.zeros((1, 5000), dtype=np.float32), 64).usable.tolist() == [False]
