"""Builds the tokenizer files of a checkpoint from the vocabulary that its GGUF file holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_tt.demo.gguf_model import GGUFModel

__all__ = ["UnknownTokenizer", "write_tokenizer"]

_CONTROL = 3
"""GGUF's type of tokens that never come from text."""


class UnknownTokenizer(TTError):
    """The GGUF file's tokenizer is {found!r}; only {known!r} can be built."""


def write_tokenizer(model: GGUFModel, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json: byte-level BPE with single digits, SmolLM2's."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (model.field("tokenizer.ggml.model"), model.field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise UnknownTokenizer(found="/".join(map(str, kind)), known="gpt2/smollm")
    tokens: list[str] = model.field("tokenizer.ggml.tokens")
    types: list[int] = model.field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in model.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = _config(model, tokens, special)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _config(model: GGUFModel, tokens: list[str], special: list[str]) -> dict[str, Any]:
    ids = model.special_ids()
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]],
        "pad_token": tokens[ids["pad_token_id"]],
        "unk_token": tokens[model.field("tokenizer.ggml.unknown_token_id")],
        "additional_special_tokens": special,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.field("llama.context_length"),
        "chat_template": model.field("tokenizer.chat_template"),
    }
