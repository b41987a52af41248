from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from vllm_tt.host.weights import NoSafetensors, UnsupportedTensor, WeightsMismatch, load_weights

if TYPE_CHECKING:
    from pathlib import Path


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 5, bias=False)


def empty() -> Model:
    with torch.device("meta"):
        return Model()


def tensors(dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {name: torch.randn_like(value).to(dtype) for name, value in Model().state_dict().items()}


def test_every_parameter_gets_its_tensor_in_the_stored_dtype(tmp_path: Path) -> None:
    stored = tensors() | {"layers.0.rotary_emb.inv_freq": torch.zeros(2)}
    save_file(stored, tmp_path / "model.safetensors")
    model = empty()
    load_weights(model, tmp_path)
    assert model.state_dict().keys() == tensors().keys()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, stored[name])
        assert not parameter.requires_grad


def test_shards_named_by_an_index(tmp_path: Path) -> None:
    stored = tensors()
    names = list(stored)
    files = {name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: stored[name] for name in names if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    # not in the index, so not read
    save_file({"other": torch.zeros(1)}, tmp_path / "consolidated.safetensors")
    model = empty()
    load_weights(model, tmp_path)
    assert all(torch.equal(parameter, stored[name]) for name, parameter in model.named_parameters())


def test_files_may_begin_names_differently(tmp_path: Path) -> None:
    stored = tensors()
    files = {name.replace("layers.", "language_model.layers.", 1): tensor for name, tensor in stored.items()}
    save_file(files, tmp_path / "model.safetensors")
    model = empty()
    load_weights(model, tmp_path, prefixes={"vision.": "visual.", "language_model.": ""})
    assert all(torch.equal(parameter, stored[name]) for name, parameter in model.named_parameters())


def test_tied_parameters_are_one(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    model = empty()
    load_weights(model, tmp_path, tied={"head.weight": "embed.weight"})
    assert model.head.weight is model.embed.weight
    model.to(torch.float32)
    assert model.head.weight is model.embed.weight
    assert model.head.weight.dtype == torch.float32


def test_memory_of_the_file_is_not_shared(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    model = empty()
    load_weights(model, tmp_path)
    expected = model.head.weight.clone()
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(-200, 2)
        file.write(b"\xff" * 200)
    assert torch.equal(model.head.weight, expected)


def test_faults_are_gathered(tmp_path: Path) -> None:
    stored = tensors()
    del stored["layers.1.bias"]
    stored["layers.0.weight"] = torch.zeros(3, 4)
    stored["layers.2.weight"] = torch.zeros(4, 4)
    save_file(stored, tmp_path / "model.safetensors")
    message = (
        f"{tmp_path} does not fit the model its config.json describes: layers.0.weight is (3, 4), expected (4, 4); "
        "layers.2.weight has no place in the model; layers.1.bias is missing."
    )
    with pytest.raises(WeightsMismatch, match=f"^{re.escape(message)}$"):
        load_weights(empty(), tmp_path)


def test_only_the_first_faults_are_listed(tmp_path: Path) -> None:
    save_file({f"x{i}": torch.zeros(1) for i in range(4)}, tmp_path / "model.safetensors")
    message = (
        "x0 has no place in the model; x1 has no place in the model; x2 has no place in the model; "
        "x3 has no place in the model; embed.weight is missing and 5 more."
    )
    with pytest.raises(WeightsMismatch, match=re.escape(message) + "$"):
        load_weights(empty(), tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantised_tensors_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    stored = tensors()
    stored["head.weight"] = torch.zeros(5, 4).to(dtype)
    save_file(stored, tmp_path / "model.safetensors")
    message = (
        f"head.weight in model.safetensors is stored as {str(dtype)[6:]}: expected bfloat16, float16 or float32. "
        "Quantised checkpoints must be dequantised first."
    )
    with pytest.raises(UnsupportedTensor, match=f"^{re.escape(message)}$"):
        load_weights(empty(), tmp_path)


@pytest.mark.parametrize(
    ("files", "expected", "found"),
    [
        ({}, "model.safetensors or model.safetensors.index.json", "an empty folder"),
        (
            {"config.json": "{}", "pytorch_model.bin": ""},
            "model.safetensors or model.safetensors.index.json",
            "config.json, pytorch_model.bin",
        ),
        (
            {"model.safetensors.index.json": '{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'},
            "one.safetensors, two.safetensors",
            "model.safetensors.index.json",
        ),
    ],
)
def test_folders_without_safetensors_are_refused(
    files: dict[str, str], expected: str, found: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    message = f"{tmp_path}: expected {expected}, found {found}. Checkpoints are read in the safetensors format only."
    with pytest.raises(NoSafetensors, match=f"^{re.escape(message)}$"):
        load_weights(empty(), tmp_path)
