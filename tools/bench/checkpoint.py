"""A checkpoint folder that names the no-op model: its vocabulary is of any size, its weights are nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LONGEST", "write_checkpoint"]

LONGEST = 4096
"""Tokens of the longest request."""
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def write_checkpoint(folder: Path, vocab_size: int) -> Path:
    """Configuration and tokenizer (``t17`` is token 17) of a model with one layer, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    config = {
        "architectures": ["NoOpForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "max_position_embeddings": LONGEST,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    _write(folder / "config.json", config | size | heads | SPECIAL)
    _write(folder / "generation_config.json", SPECIAL)
    _write_tokenizer(folder, vocab_size)
    return folder


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    names = [f"<{i}>" if i < len(SPECIAL) else f"t{i}" for i in range(vocab_size)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[3]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[: len(SPECIAL)]])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    roles = {f"{role}_token": names[i] for i, role in enumerate(("pad", "bos", "eos", "unk"))}
    _write(folder / "tokenizer_config.json", settings | roles)


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
