"""Streams safetensors files into a module: one tensor at a time, so memory is needed once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from safetensors import safe_open
from torch import nn

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import torch

__all__ = ["NoSafetensors", "UnsupportedTensor", "WeightsMismatch", "load_weights"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_NOT_WEIGHTS = ("rotary_emb.inv_freq",)


class NoSafetensors(ConfigError):
    """{folder}: expected {expected}, found {found}. Checkpoints are read in the safetensors format only."""


class WeightsMismatch(ConfigError):
    """{folder} does not fit the model its config.json describes: {faults}."""


class UnsupportedTensor(ConfigError):
    """{name} in {file} is stored as {found}: expected bfloat16, float16 or float32. Quantised checkpoints
    must be dequantised first.
    """


def load_weights(
    module: nn.Module,
    folder: Path,
    tied: Mapping[str, str] | None = None,
    prefixes: Mapping[str, str] | None = None,
) -> None:
    """Give every parameter of ``module`` the tensor of its name in ``folder``, in the dtype stored there.

    ``module`` is best built on the meta device. ``tied`` maps parameters to those they share, ``prefixes`` how
    names in the files begin to how those of parameters do.
    """
    tied = tied or {}
    wanted = {name: tuple(parameter.shape) for name, parameter in module.named_parameters() if name not in tied}
    faults = []
    for stored_name, tensor in _tensors(folder):
        name = _renamed(stored_name, prefixes or {})
        if name in tied or name.endswith(_NOT_WEIGHTS):
            continue
        shape = wanted.pop(name, None)
        if shape is None:
            faults.append(f"{stored_name} has no place in the model")
        elif shape != tuple(tensor.shape):
            faults.append(f"{stored_name} is {tuple(tensor.shape)}, expected {shape}")
        else:
            _assign(module, name, nn.Parameter(tensor.clone(), requires_grad=False))
    faults += [f"{name} is missing" for name in wanted]
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise WeightsMismatch(folder=folder, faults="; ".join(faults[:5]) + more)
    for name, source in tied.items():
        _assign(module, name, module.get_parameter(source))


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for prefix, ours in prefixes.items():
        if name.startswith(prefix):
            return ours + name.removeprefix(prefix)
    return name


def _assign(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, parameter)


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in _files(folder):
        with safe_open(file, framework="pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a mapping
                tensor = stored.get_tensor(name)
                if not tensor.is_floating_point() or tensor.itemsize < 2:
                    raise UnsupportedTensor(name=name, file=file.name, found=str(tensor.dtype).removeprefix("torch."))
                yield name, tensor


def _files(folder: Path) -> list[Path]:
    if (index := folder / _INDEX).is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    elif (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:20]) or "an empty folder"
        raise NoSafetensors(folder=folder, expected=", ".join(missing) or f"{_SINGLE} or {_INDEX}", found=found)
    return [folder / name for name in names]
