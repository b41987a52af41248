"""A tokenizer of single bytes with a chat's marks, and the settings of an image processor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["END", "PAD", "Settings", "byte_tokenizer"]

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for part in message['content'] -%}
{%- if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif -%}
{%- endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_tokenizer(*marks: str) -> PreTrainedTokenizerFast:
    """A token for each byte, 0 to 255 in an order of its own, then those of a chat and ``marks``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.add_special_tokens(
        [AddedToken(mark, special=True, normalized=False) for mark in (PAD, START, END, *marks)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise, eos_token=END, pad_token=PAD, extra_special_tokens=[START, *marks]
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A JSON file of a checkpoint."""

    name: str
    values: Mapping[str, Any]

    def save_pretrained(self, folder: Path) -> None:
        (folder / self.name).write_text(json.dumps(self.values, indent=2) + "\n", encoding="utf-8")
