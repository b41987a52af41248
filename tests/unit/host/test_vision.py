"""The vision tower against transformers' own, with the same weights in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from vllm_tt.host.vision import VisionTower, groups_of, patch_places

CONFIG = Qwen2_5_VLVisionConfig(
    depth=3,
    hidden_size=32,
    intermediate_size=40,
    num_heads=2,
    patch_size=4,
    window_size=28,  # windows of three tokens each way
    fullatt_block_indexes=[1],
    out_hidden_size=24,
)
PIXELS = CONFIG.in_channels * CONFIG.temporal_patch_size * CONFIG.patch_size**2
GRIDS = [(1, 2, 2), (1, 4, 6), (1, 6, 6), (1, 8, 14), (1, 2, 20), (1, 22, 10)]


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch.manual_seed(0)
    tower = Qwen2_5_VisionTransformerPretrainedModel(CONFIG).eval()
    for parameter in tower.parameters():
        noise = torch.randn_like(parameter)
        parameter.data = parameter.data + 0.2 * noise if noise.ndim == 1 else 1.5 * noise[0].numel() ** -0.5 * noise
    return tower


@pytest.fixture(scope="module")
def ours(theirs: Any) -> VisionTower:
    tower = VisionTower(CONFIG)
    tower.load_state_dict(theirs.state_dict())
    return tower


def pixels(grid: torch.Tensor) -> torch.Tensor:
    return torch.randn(int(grid.prod()), PIXELS)


@torch.no_grad()
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_tokens_are_those_of_transformers(theirs: Any, ours: VisionTower, grid: tuple[int, ...]) -> None:
    sides = torch.tensor(grid)
    patches = pixels(sides)
    expected = theirs(patches, grid_thw=sides[None]).pooler_output
    torch.testing.assert_close(ours(patches, sides), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_images_one_by_one_are_those_computed_together(theirs: Any, ours: VisionTower) -> None:
    grids = torch.tensor(GRIDS)
    patches = [pixels(grid) for grid in grids]
    expected = theirs(torch.cat(patches), grid_thw=grids).pooler_output
    found = torch.cat([ours(some, grid) for some, grid in zip(patches, grids, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_tower_follows_the_dtype_of_its_weights(ours: VisionTower) -> None:
    grid = torch.tensor([1, 4, 6])
    patches = pixels(grid)
    tower = VisionTower(CONFIG)
    tower.load_state_dict(ours.state_dict())
    found = tower.to(torch.bfloat16)(patches, grid)
    assert found.dtype == torch.bfloat16
    exact = ours(patches, grid)
    assert (found.float() - exact).abs().mean() < 0.05 * exact.std()


def test_patches_of_one_token_follow_one_another() -> None:
    frames, rows, columns = patch_places(torch.tensor([2, 2, 4]), 2).tolist()
    assert frames == [0] * 8 + [1] * 8
    assert rows == [0, 0, 1, 1, 0, 0, 1, 1] * 2
    assert columns == [0, 1, 0, 1, 2, 3, 2, 3] * 2


def test_groups_are_gathered_by_their_size() -> None:
    labels = torch.tensor([[0, 0, 0, 1, 0, 1, 0], [3, 4, 3, 3, 4, 3, 5]])
    assert [rows.tolist() for rows in groups_of(labels)] == [[[6]], [[0, 2], [1, 4], [3, 5]]]
