from __future__ import annotations

import numpy as np
import torch

from vllm_tt.host.image_prompts import ImagePrompts
from vllm_tt.host.mrope import ImageTokens

LAYOUT = ImageTokens(token=9, merge=2)
GRID, WIDE = torch.tensor([1, 4, 4]), torch.tensor([1, 2, 6])
PIXELS, WIDE_PIXELS = torch.ones(16, 24), torch.ones(12, 24)
PROMPT = [5, 9, 9, 9, 9, 5, 5, 9, 9, 9, 5]


def rows(*tokens: list[int]) -> torch.Tensor:
    longest = max(map(len, tokens))
    return torch.tensor([row + [0] * (longest - len(row)) for row in tokens], dtype=torch.int32)


def test_a_chunk_has_the_images_that_begin_in_it_and_the_positions_of_all() -> None:
    found = ImagePrompts.build(
        LAYOUT,
        rows([5, 5, 5], PROMPT, [5, 9, 9, 9]),
        np.array([1, 6, 0]),
        np.array([3, 11, 4]),
        [None, [None, WIDE_PIXELS], [WIDE_PIXELS]],
        [None, [GRID, WIDE], [WIDE]],
    )
    assert found.positions.tolist() == [
        [1, 2, 4, 5, 5, 5, 8, 0, 1, 1, 1],
        [1, 2, 4, 5, 5, 5, 8, 0, 1, 1, 1],
        [1, 2, 4, 5, 6, 7, 8, 0, 1, 2, 3],
    ]
    assert found.deltas.tolist() == [0, -2, 0]
    assert [image.tokens for image in found.images] == [slice(3, 6), slice(8, 11)]
    assert all(image.patches is WIDE_PIXELS and image.grid is WIDE for image in found.images)


def test_chunks_together_are_the_whole() -> None:
    tokens, grids = rows(PROMPT), [[GRID, WIDE]]
    whole = ImagePrompts.build(LAYOUT, tokens, np.array([0]), np.array([11]), [[PIXELS, WIDE_PIXELS]], grids)
    first = ImagePrompts.build(LAYOUT, tokens, np.array([0]), np.array([6]), [[PIXELS]], [[GRID]])
    second = ImagePrompts.build(LAYOUT, tokens, np.array([6]), np.array([11]), [[None, WIDE_PIXELS]], grids)
    assert torch.equal(torch.cat((first.positions, second.positions), dim=1), whole.positions)
    assert [image.tokens for image in whole.images] == [slice(1, 5), slice(7, 10)]
    assert [image.tokens for image in (*first.images, *second.images)] == [slice(1, 5), slice(1, 4)]
    assert first.deltas.tolist() == [-2]
    assert second.deltas.tolist() == whole.deltas.tolist() == [-2]


def test_a_call_without_images() -> None:
    found = ImagePrompts.build(LAYOUT, rows([5, 5], [5]), np.array([0, 0]), np.array([2, 1]))
    assert found.positions.tolist() == [[0, 1, 0]] * 3
    assert (found.deltas.tolist(), found.images) == ([0, 0], ())
