"""The paged-hash model as a pure function, and a checkpoint folder that names it.

Every cell of its "KV cache" holds the token written there and a fingerprint of all tokens up to it,
as a real cache's keys and values depend on all that came before. The next token is a hash of every
cell of the row, read back through the page table at every step.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]

__all__ = ["EOS", "RESERVED", "VOCAB_SIZE", "cell", "choose", "expected_tokens", "scatter", "term", "write_checkpoint"]

VOCAB_SIZE = 512
RESERVED = 16
"""Tokens below are special; the model never emits them, save `EOS` where that is asked for."""
EOS = 2


def scatter(words: Words) -> Words:
    """A bijection of 64-bit words that scatters them (the finalizer of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def term(tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> Words:
    """What each token adds to the fingerprint of the tokens up to it."""
    return scatter(
        tokens.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + positions.astype(np.uint64) + np.uint64(1)
    )


def cell(tokens: npt.NDArray[np.int64], fingerprints: Words, positions: npt.NDArray[np.int64]) -> Words:
    """What each cell adds to the row's hash."""
    return scatter(term(tokens, positions) ^ scatter(fingerprints + positions.astype(np.uint64)))


def choose(hashes: Words, lengths: npt.NDArray[np.int64], vocab_size: int, eos_every: int) -> npt.NDArray[np.int64]:
    """The next token of rows with these sums of cells and these lengths."""
    mixed = scatter(hashes + lengths.astype(np.uint64))
    chosen = (RESERVED + mixed % np.uint64(vocab_size - RESERVED)).astype(np.int64)
    if eos_every:
        chosen[scatter(mixed) % np.uint64(eos_every) == 0] = EOS
    return chosen


def expected_tokens(
    prompt: Sequence[int], count: int, *, vocab_size: int = VOCAB_SIZE, eos_every: int = 0
) -> list[int]:
    """The ``count`` tokens that follow ``prompt``; fewer when the model ends with `EOS`, which is included."""
    fingerprint, total = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    tokens, length, out = np.array(prompt, np.int64), 0, []
    while len(out) < count and EOS not in out[-1:]:
        positions = np.arange(length, length + len(tokens))
        fingerprints = fingerprint + np.cumsum(term(tokens, positions), dtype=np.uint64)
        total = total + cell(tokens, fingerprints, positions).sum(dtype=np.uint64)
        fingerprint, length = fingerprints[-1:], length + len(tokens)
        tokens = choose(total, np.array([length]), vocab_size, eos_every)
        out.append(int(tokens[0]))
    return out


def write_checkpoint(
    folder: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    layers: int = 1,
    heads: int = 2,
    head_dim: int = 8,
    max_positions: int = 4096,
    eos_every: int = 0,
    chosen_logit: float = 100.0,
) -> Path:
    """A folder that `vllm serve` takes as a model: configuration and tokenizer (``t17`` is token 17).

    ``chosen_logit`` is that of the next token; all others are 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    special = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0}
    _write(
        folder / "config.json",
        {
            "architectures": ["PagedHashForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab_size,
            "hidden_size": heads * head_dim,
            "intermediate_size": head_dim,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head_dim,
            "max_position_embeddings": max_positions,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "eos_every": eos_every,
            "chosen_logit": chosen_logit,
            **special,
        },
    )
    _write(folder / "generation_config.json", special)
    _write_tokenizer(folder, vocab_size)
    return folder


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    names = [f"<{i}>" if i < RESERVED else f"t{i}" for i in range(vocab_size)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[3]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:RESERVED]])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": names[0],
            "bos_token": names[1],
            "eos_token": names[EOS],
            "unk_token": names[3],
            "clean_up_tokenization_spaces": False,
            "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
        },
    )


def _write(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
