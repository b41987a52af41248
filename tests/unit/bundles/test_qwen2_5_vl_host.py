from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from by_transformers import greedy
from safetensors.torch import load_file, save_file
from tools.tiny_models.write import make, spread
from transformers import Qwen2_5_VLForConditionalGeneration as Reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 16
PIXELS = 3 * 2 * 4 * 4
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 1000.0,
    "mrope_section": [2, 3, 3],
}


@dataclass(frozen=True, kw_only=True)
class Prompt:
    tokens: list[int]
    grids: list[torch.Tensor]
    pixels: list[torch.Tensor]


@dataclass
class Sent:
    """An adapter, sent images and rotary deltas as the worker does; ``prompts`` are by slot."""

    adapter: Any
    prompts: dict[int, Prompt] = field(default_factory=dict)
    deltas: list[int] = field(default_factory=lambda: [0] * 4)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    def prefill_forward(self, **inputs: Any) -> torch.Tensor:
        pixels, grids = [], []
        for slot, start, end in zip(inputs["empty_slots"], inputs["start_pos"], inputs["prompt_lens"], strict=True):
            prompt = self.prompts[slot]
            places = self.adapter.layout.places(torch.tensor(prompt.tokens), prompt.grids)
            begun = [place for place in places if place.start < end]
            grids.append(prompt.grids[: len(begun)] or None)
            pixels.append([None if place.stop <= start else prompt.pixels[i] for i, place in enumerate(begun)] or None)
        out, deltas = self.adapter.prefill_forward(pixel_values=pixels, image_grid_thw=grids, **inputs)
        for slot, delta in zip(inputs["empty_slots"], deltas.tolist(), strict=True):
            self.deltas[slot] = delta
        return out

    def decode_forward(self, **inputs: Any) -> torch.Tensor:
        return self.adapter.decode_forward(rope_deltas_all_users=self.deltas, **inputs)


def prompt_of(config: Any, *parts: int | tuple[int, int]) -> Prompt:
    """Of numbers of text tokens, and rows and columns of images in tokens."""
    tokens: list[int] = []
    grids, pixels = [], []
    for part in parts:
        if isinstance(part, int):
            tokens += [(5 * i * i + 3 * len(tokens)) % 250 for i in range(part)]
            continue
        rows, columns = part
        image = [config.image_token_id] * (rows * columns)
        tokens += [config.vision_start_token_id, *image, config.vision_end_token_id]
        grids.append(torch.tensor([1, 2 * rows, 2 * columns]))
        pixels.append(torch.randn(4 * rows * columns, PIXELS))
    return Prompt(tokens=tokens, grids=grids, pixels=pixels)


@pytest.fixture
def served(serve_checkpoint: Any, bundle_module: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """``served(**overrides)``: the adapter over a tiny checkpoint, and transformers' model of it."""

    def serve(**overrides: Any) -> tuple[Any, Any]:
        config = make("qwen2_5_vl")[0].config.to_dict()
        text = config["text_config"] | overrides.get("text_config", {}) | {"layer_types": None}
        config |= overrides | {"text_config": text}
        torch.manual_seed(9)
        model = Reference(Reference.config_class(**config)).eval()
        spread(model)
        model.save_pretrained(tmp_path)
        return load(serve_checkpoint, bundle_module, tmp_path), model

    return serve


def load(serve_checkpoint: Any, bundle_module: Any, folder: Path) -> Any:
    adapter = serve_checkpoint(bundle_module("qwen2_5_vl-host").Qwen2_5_VLForConditionalGeneration, folder)
    adapter.adapter = Sent(adapter.adapter)
    return adapter


def reference(model: Any, prompt: Prompt) -> tuple[list[int], torch.Tensor]:
    """Transformers' greedy tokens, and the logits that each was chosen from [count, V]."""
    images = (
        {"pixel_values": torch.cat(prompt.pixels), "image_grid_thw": torch.stack(prompt.grids)} if prompt.grids else {}
    )
    types = (torch.tensor([prompt.tokens]) == model.config.image_token_id).int()
    return greedy(model, prompt.tokens, COUNT, mm_token_type_ids=types, **images)


def prompts(config: Any) -> dict[int, Prompt]:
    """By slot: no image, one, two, and one at the end."""
    torch.manual_seed(4)
    return {
        2: prompt_of(config, 20),
        0: prompt_of(config, 3, (4, 3), 17),
        3: prompt_of(config, (3, 5), 9, (2, 7), 4),
        1: prompt_of(config, 6, (5, 5)),
    }


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, id="plain"),
        pytest.param({"tie_word_embeddings": True}, id="tied"),
        pytest.param(
            {"text_config": {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}}, id="windows"
        ),
        pytest.param({"text_config": {"rope_parameters": YARN}}, id="yarn"),
    ],
)
def test_greedy_tokens_and_logits_equal_transformers(overrides: dict[str, Any], served: Any) -> None:
    adapter, model = served(**overrides)
    sent = adapter.adapter.prompts = prompts(model.config)
    expected = {slot: reference(model, prompt) for slot, prompt in sent.items()}
    tokens = {slot: prompt.tokens for slot, prompt in sent.items()}
    assert adapter.generate(tokens, COUNT) == {slot: found for slot, (found, _) in expected.items()}
    for slot, (found, logits) in expected.items():
        row = adapter.decode({slot: (found[4], len(tokens[slot]) + 4)})[slot]
        torch.testing.assert_close(row, logits[5], rtol=1e-3, atol=1e-3)


def test_chunks_equal_the_prompt_at_once(served: Any) -> None:
    adapter, model = served()
    sent = adapter.adapter.prompts = prompts(model.config)
    tokens = {slot: prompt.tokens for slot, prompt in sent.items()}
    whole = adapter.prefill(*[(slot, row, 0, len(row)) for slot, row in tokens.items()])
    deltas = list(adapter.adapter.deltas)
    cuts = {2: 7, 0: 16, 3: 26, 1: 7}
    adapter.prefill(*[(slot, row, 0, cuts[slot]) for slot, row in tokens.items()])
    rest = adapter.prefill(*[(slot, row, cuts[slot], len(row)) for slot, row in tokens.items()])
    torch.testing.assert_close(rest, whole, rtol=1e-3, atol=1e-3)
    assert adapter.adapter.deltas == deltas


def test_other_pixels_and_other_shapes_give_other_logits(served: Any) -> None:
    adapter, model = served()
    found = []
    for parts in ((3, 4), (3, 4), (4, 3)):
        prompt = prompt_of(model.config, 3, parts, 8)
        adapter.adapter.prompts = {0: prompt}
        found.append(adapter.prefill((0, prompt.tokens, 0, len(prompt.tokens)))[0])
    assert min((one - other).abs().mean() / one.std() for one in found for other in found if one is not other) > 0.1


def test_checkpoints_of_newer_tools_have_other_names(
    served: Any, serve_checkpoint: Any, bundle_module: Any, tmp_path: Path
) -> None:
    adapter, _ = served()
    stored = load_file(tmp_path / "model.safetensors")
    inner = {"model.": "model.language_model.", "visual.": "model.visual."}
    renamed = {}
    for name, tensor in stored.items():
        prefix = name[: name.index(".") + 1]
        renamed[inner.get(prefix, prefix) + name.removeprefix(prefix)] = tensor
    assert not {"model.norm.weight", "visual.merger.ln_q.weight"} & set(renamed)
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = load(serve_checkpoint, bundle_module, tmp_path)
    for name, parameter in adapter.adapter.model.named_parameters():
        assert torch.equal(again.adapter.model.get_parameter(name), parameter)


def test_parameters_have_the_names_of_checkpoints(served: Any) -> None:
    adapter, _ = served()
    names = {name for name, _ in adapter.adapter.model.named_parameters()}
    assert {
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.norm.weight",
        "visual.blocks.0.attn.qkv.bias",
        "visual.blocks.0.mlp.gate_proj.bias",
        "visual.merger.mlp.2.weight",
        "visual.patch_embed.proj.weight",
    } <= names
