"""Paged attention of whole steps against dense attention row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vllm_tt.host.kv_cache import PagedKV
from vllm_tt.host.step import DecodeStep, PrefillStep, Step

PAGE, WIDTH, HEADS, KV_HEADS, SIZE = 4, 8, 6, 2, 8


class Sequences:
    """Random keys, values and queries of some sequences, and the pages they live in."""

    def __init__(self, lengths: list[int], seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.keys = [torch.randn(length, KV_HEADS, SIZE) for length in lengths]
        self.values = [torch.randn(length, KV_HEADS, SIZE) for length in lengths]
        self.queries = [torch.randn(length, HEADS, SIZE) for length in lengths]
        pages = torch.randperm(len(lengths) * WIDTH).int() + 1
        self.table = pages.view(len(lengths), WIDTH)
        for row, length in zip(self.table, lengths, strict=True):
            row[-(-length // PAGE) :] = 0
        self.cache = PagedKV.allocate(len(pages) + 1, KV_HEADS, PAGE, SIZE, torch.float32)

    def run(self, step: Step, parts: list[tuple[int, int, int]]) -> list[torch.Tensor]:
        """Write and attend (row, start, end) parts; the outputs of each."""
        pick = [[rows[i][start:end] for i, start, end in parts] for rows in (self.keys, self.values, self.queries)]
        keys, values, queries = (torch.cat(rows) for rows in pick)
        self.cache.write(step.cells, keys, values)
        out = step.attend(queries, self.cache)
        return list(out.split([end - start for _, start, end in parts]))

    def dense(self, row: int, start: int, end: int) -> torch.Tensor:
        """Attention of positions start to end, one query at a time."""
        group = HEADS // KV_HEADS
        out = torch.empty(end - start, HEADS, SIZE)
        for position in range(start, end):
            for head in range(HEADS):
                keys = self.keys[row][: position + 1, head // group]
                weights = (keys @ self.queries[row][position, head] / SIZE**0.5).softmax(0)
                out[position - start, head] = weights @ self.values[row][: position + 1, head // group]
        return out


def prefill(sequences: Sequences, parts: list[tuple[int, int, int]]) -> tuple[PrefillStep, list[torch.Tensor]]:
    ends = np.array([end for _, _, end in parts], dtype=np.int64)
    tokens = torch.arange(len(parts) * int(ends.max()), dtype=torch.int32).view(len(parts), -1)
    step = PrefillStep.build(
        tokens,
        sequences.table[[row for row, _, _ in parts]],
        np.array([start for _, start, _ in parts], dtype=np.int64),
        ends,
        PAGE,
    )
    return step, sequences.run(step, parts)


@pytest.mark.parametrize(
    "steps",
    [
        [[(0, 0, 13)]],
        [[(0, 0, 1), (1, 0, 4), (2, 0, 9)]],
        [[(2, 0, 3), (0, 0, 13)], [(2, 3, 4)], [(1, 0, 2), (2, 4, 9)]],
        [[(0, 0, 5)], [(0, 5, 6)], [(0, 6, 12)], [(0, 12, 13)]],
    ],
    ids=["one prompt", "prompts together", "chunks beside prompts", "chunks that end inside pages"],
)
def test_prefill_equals_dense_attention(steps: list[list[tuple[int, int, int]]]) -> None:
    sequences = Sequences([13, 4, 9])
    for parts in steps:
        _, outs = prefill(sequences, parts)
        for part, out in zip(parts, outs, strict=True):
            torch.testing.assert_close(out, sequences.dense(*part), rtol=1e-5, atol=1e-5)
    assert not sequences.cache.keys[0].any(), "nothing was written to the null page"


def test_a_prefill_step_knows_its_tokens() -> None:
    step, _ = prefill(Sequences([13, 4]), [(1, 0, 4), (0, 2, 5)])
    assert step.tokens.tolist() == [0, 1, 2, 3, 7, 8, 9]
    assert step.positions.tolist() == [0, 1, 2, 3, 2, 3, 4]
    assert step.lengths.tolist() == [4, 4, 4, 4, 5, 5, 5]
    assert step.last.tolist() == [3, 6]


def test_decode_equals_dense_attention_whatever_the_lengths() -> None:
    lengths = [1, 2, 5, 17, 32, 31, 4]
    sequences = Sequences(lengths)
    prefill(sequences, [(row, 0, length - 1) for row, length in enumerate(lengths) if length > 1])
    # slots 2 and 5 are idle; rows sit in the others in another order
    order = [3, 6, None, 0, 4, None, 1, 5, 2]
    start_pos = torch.tensor([-1 if row is None else lengths[row] - 1 for row in order], dtype=torch.int32)
    table = torch.stack([sequences.table[row] if row is not None else torch.zeros(WIDTH).int() for row in order])
    tokens = torch.arange(len(order), dtype=torch.int32)[:, None]
    step = DecodeStep.build(tokens, table, start_pos, PAGE)
    assert step.live.tolist() == step.tokens.tolist() == [0, 1, 3, 4, 6, 7, 8]
    parts = [(row, lengths[row] - 1, lengths[row]) for row in order if row is not None]
    for part, out in zip(parts, sequences.run(step, parts), strict=True):
        torch.testing.assert_close(out, sequences.dense(*part), rtol=1e-5, atol=1e-5)
    assert not sequences.cache.keys[0].any(), "idle slots write nothing"


def test_a_decode_step_without_rows_is_empty() -> None:
    step = DecodeStep.build(torch.zeros(3, 1).int(), torch.zeros(3, WIDTH).int(), torch.full((3,), -1).int(), PAGE)
    cache = PagedKV.allocate(2, KV_HEADS, PAGE, SIZE, torch.float32)
    cache.write(step.cells, torch.zeros(0, KV_HEADS, SIZE), torch.zeros(0, KV_HEADS, SIZE))
    assert step.attend(torch.zeros(0, HEADS, SIZE), cache).shape == (0, HEADS, SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_pages_are_read_in_the_order_of_the_table(dtype: torch.dtype) -> None:
    cache = PagedKV.allocate(5, KV_HEADS, PAGE, SIZE, dtype)
    assert cache.keys.dtype == cache.values.dtype == dtype
    assert not cache.keys.any()
    keys = torch.randn(6, KV_HEADS, SIZE).to(dtype)
    pages, offsets = torch.tensor([3, 3, 3, 3, 1, 1]), torch.tensor([0, 1, 2, 3, 0, 1])
    cache.write((pages, offsets), keys, -keys)
    found, values = cache.read(torch.tensor([[3, 1], [1, 4]]))
    assert found.shape == (2, KV_HEADS, 2 * PAGE, SIZE)
    assert torch.equal(found[0, :, :6], keys.transpose(0, 1))
    assert torch.equal(found[1, :, :2], keys[4:].transpose(0, 1))
    assert torch.equal(values, -found)
