"""Paged attention of whole steps against dense attention row by row."""

from __future__ import annotations

from dataclasses import replace

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

    def run(self, step: Step, parts: list[tuple[int, int, int]], **how: float) -> list[torch.Tensor]:
        """Write and attend (row, start, end) parts; the outputs of each."""
        pick = [[rows[i][start:end] for i, start, end in parts] for rows in (self.keys, self.values, self.queries)]
        keys, values, queries = (torch.cat(rows) for rows in pick)
        self.cache.write(step.cells, keys, values)
        out = step.attend(queries, self.cache, **how)
        return list(out.split([end - start for _, start, end in parts]))

    def lose(self, row: int, position: int, window: int) -> None:
        """Others take the pages that nothing from ``position`` on sees; in the table they are null."""
        behind = max(position + 1 - window, 0) // PAGE
        for page in [*self.table[row, :behind].tolist(), 0]:
            self.cache.keys[page], self.cache.values[page] = 1e4, 1e4
        self.table[row, :behind] = 0

    def dense(self, row: int, start: int, end: int, *, scale: float = SIZE**-0.5, window: int = 10**9) -> torch.Tensor:
        """Attention of positions start to end, one query at a time."""
        group = HEADS // KV_HEADS
        out = torch.empty(end - start, HEADS, SIZE)
        for position in range(start, end):
            for head in range(HEADS):
                seen = slice(max(position + 1 - window, 0), position + 1)
                weights = (self.keys[row][seen, head // group] @ self.queries[row][position, head] * scale).softmax(0)
                out[position - start, head] = weights @ self.values[row][seen, head // group]
        return out


def prefill(
    sequences: Sequences, parts: list[tuple[int, int, int]], **how: float
) -> tuple[PrefillStep, list[torch.Tensor]]:
    ends = np.array([end for _, _, end in parts], dtype=np.int64)
    tokens = torch.arange(len(parts) * int(ends.max()), dtype=torch.int32).view(len(parts), -1)
    step = PrefillStep.build(
        tokens,
        sequences.table[[row for row, _, _ in parts]],
        np.array([start for _, start, _ in parts], dtype=np.int64),
        ends,
        PAGE,
        torch.tensor([row for row, _, _ in parts]),
    )
    return step, sequences.run(step, parts, **how)


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


@pytest.mark.parametrize("window", [1, 3, 4, 6, 8, 13, 30])
def test_windows_in_prompts_and_chunks(window: int) -> None:
    sequences = Sequences([29, 30, 9])
    for parts in [(0, 0, 11), (1, 0, 30)], [(0, 11, 12), (2, 0, 3)], [(0, 12, 25), (2, 3, 9)], [(0, 25, 29)]:
        for row, start, _ in parts:
            sequences.lose(row, start, window)
        _, outs = prefill(sequences, parts, window=window)
        for part, out in zip(parts, outs, strict=True):
            torch.testing.assert_close(out, sequences.dense(*part, window=window), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 4, 6, 8, 13, 40])
def test_windows_in_decode(window: int) -> None:
    lengths = [1, 2, 5, 17, 31, 30, 4, 13]
    sequences = Sequences(lengths)
    prefill(sequences, [(row, 0, length - 1) for row, length in enumerate(lengths) if length > 1])
    for row, length in enumerate(lengths):
        sequences.lose(row, length - 1, window)
    start_pos = torch.tensor(lengths, dtype=torch.int32) - 1
    step = DecodeStep.build(torch.zeros(len(lengths), 1).int(), sequences.table, start_pos, PAGE)
    parts = [(row, length - 1, length) for row, length in enumerate(lengths)]
    for part, out in zip(parts, sequences.run(step, parts, window=window), strict=True):
        torch.testing.assert_close(out, sequences.dense(*part, window=window), rtol=1e-5, atol=1e-5)


def test_layers_of_a_step_may_see_and_scale_differently() -> None:
    sequences = Sequences([21, 10])
    prefill(sequences, [(0, 0, 20), (1, 0, 9)])
    step = DecodeStep.build(torch.zeros(2, 1).int(), sequences.table, torch.tensor([20, 9]).int(), PAGE)
    parts = [(0, 20, 21), (1, 9, 10)]
    for how in {"window": 5}, {}, {"window": 12, "scale": 0.1}, {"scale": 2.0}, {"window": 5}:
        for part, out in zip(parts, sequences.run(step, parts, **how), strict=True):
            torch.testing.assert_close(out, sequences.dense(*part, **how), rtol=1e-5, atol=1e-5)


def test_a_windowed_decode_reads_its_windows_pages_alone() -> None:
    sequences = Sequences([32, 31])
    step = DecodeStep.build(torch.zeros(2, 1).int(), sequences.table, torch.tensor([31, 30]).int(), PAGE)
    sequences.run(step, [(0, 31, 32), (1, 30, 31)], window=6)
    (group,) = step.classes[6]
    assert group.pages.tolist() == sequences.table[:, 6:].tolist()


def test_each_layer_has_the_step_with_its_table() -> None:
    step, _ = prefill(Sequences([13, 4]), [(1, 0, 4)])
    assert step.of_layer(3) is step
    other, _ = prefill(Sequences([13, 4], seed=1), [(1, 0, 4)])
    several = replace(step, layers=(other, step, other))
    assert [several.of_layer(i) for i in range(3)] == [other, step, other]


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
    assert step.slots.tolist() == step.tokens.tolist() == [0, 1, 3, 4, 6, 7, 8]
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
