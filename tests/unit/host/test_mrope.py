"""Rotary positions of prompts with images, against transformers' own."""

from __future__ import annotations

import random
import re

import pytest
import torch
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel, Qwen2_5_VLRotaryEmbedding

from vllm_tt.host.frequencies import Rope, UnsupportedRope
from vllm_tt.host.mrope import ImageTokens, MultiRotaryEmbedding, RowPositions

IMAGE, TEXT = 9, 5
LAYOUT = ImageTokens(token=IMAGE, merge=2)
TEXT_CONFIG = {
    "vocab_size": 16,
    "hidden_size": 64,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "mrope_section": [4, 5, 7]},
}
CONFIG = Qwen2_5_VLConfig(
    text_config=TEXT_CONFIG,
    vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 64},
)


@pytest.fixture(scope="module")
def theirs() -> Qwen2_5_VLModel:
    with torch.device("meta"):
        return Qwen2_5_VLModel(CONFIG)


def prompt(rng: random.Random) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Tokens of text and one to three images, which may begin or end it, and the images' grids."""
    grids = [torch.tensor([1, 2 * rng.randint(1, 9), 2 * rng.randint(1, 9)]) for _ in range(rng.randint(1, 3))]
    tokens = [TEXT] * rng.randint(0, 5)
    for i, grid in enumerate(grids):
        tokens += [TEXT] * bool(i) + [IMAGE] * LAYOUT.count(grid) + [TEXT] * rng.randint(0, 5)
    return torch.tensor(tokens), grids


def positions_of(tokens: torch.Tensor, grids: list[torch.Tensor]) -> RowPositions:
    return RowPositions.of(len(tokens), LAYOUT.places(tokens, grids), grids, LAYOUT.merge)


@pytest.mark.parametrize("seed", range(20))
def test_positions_and_delta_are_those_of_transformers(theirs: Qwen2_5_VLModel, seed: int) -> None:
    tokens, grids = prompt(random.Random(seed))
    types = (tokens == IMAGE).int()[None]
    expected, delta = theirs.get_rope_index(tokens[None], types, image_grid_thw=torch.stack(grids))
    found = positions_of(tokens, grids)
    assert torch.equal(found.positions, expected[:, 0])
    assert found.delta == delta.item()


def test_text_has_its_places_for_positions() -> None:
    found = positions_of(torch.full((6,), TEXT), [])
    assert found.positions.tolist() == [[0, 1, 2, 3, 4, 5]] * 3
    assert found.delta == 0


def test_the_delta_continues_a_row_whatever_follows() -> None:
    tokens, grids = prompt(random.Random(3))
    longer = torch.cat((tokens, torch.full((4,), TEXT)))
    short, long = positions_of(tokens, grids), positions_of(longer, grids)
    assert long.delta == short.delta < 0
    assert torch.equal(long.positions[:, len(tokens) :], (torch.arange(4) + len(tokens) + short.delta).expand(3, -1))


def test_images_without_text_between_them_are_told_apart() -> None:
    grids = [torch.tensor([1, 4, 4]), torch.tensor([1, 2, 6])]
    tokens = torch.tensor([TEXT, *[IMAGE] * 7, TEXT, IMAGE])
    assert LAYOUT.places(tokens, grids) == [slice(1, 5), slice(5, 8)], "the last token is one that was generated"
    assert positions_of(tokens, grids).positions.tolist() == [
        [0, 1, 1, 1, 1, 3, 3, 3, 6, 7],
        [0, 1, 1, 2, 2, 3, 3, 3, 6, 7],
        [0, 1, 2, 1, 2, 3, 4, 5, 6, 7],
    ]


def test_sections_of_a_head_turn_by_one_coordinate_each() -> None:
    positions = torch.randint(0, 500, (3, 11))
    cos, sin = MultiRotaryEmbedding(Rope.from_config(CONFIG.text_config))(positions, torch.float32)
    expected = Qwen2_5_VLRotaryEmbedding(CONFIG.text_config)(torch.zeros(1), positions[:, None])
    torch.testing.assert_close((cos[:, 0], sin[:, 0]), tuple(one[0] for one in expected), rtol=0, atol=1e-6)


def test_frequencies_that_vary_with_the_length_are_refused() -> None:
    rope = Rope(kind="dynamic", dim=8, theta=100.0, max_positions=16, values={"mrope_section": [2, 1, 1]})
    message = (
        "The checkpoint's rotary embedding declares rope_type 'dynamic' with mrope_section; the host blocks support "
        "those that do not vary."
    )
    with pytest.raises(UnsupportedRope, match=f"^{re.escape(message)}$"):
        MultiRotaryEmbedding(rope)
