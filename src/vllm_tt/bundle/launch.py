"""Which launch entry is this machine's, and what its command asks a server for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt import env

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vllm_tt.bundle.metadata import Launch, Metadata

__all__ = ["Options", "is_flag", "launch_entry", "machine_keys", "parse_options", "server_words"]

Options = dict[str, list[str]]
"""Flags of a server (``--max-model-len``) with the words that follow each."""

_SYSFS = Path("/sys/class/tenstorrent")
_ARCHS = {"0x401e": "wormhole_b0", "0xb140": "blackhole", "0xfaca": "grayskull"}
"""By PCI device id."""


def machine_keys(environ: Mapping[str, str], sysfs: Path = _SYSFS) -> list[str]:
    """The keys of this machine's launch entry, the first choice first."""
    if named := env.MODEL_MACHINE.get(environ):
        return [named]
    if emulated := env.EMULATE.get(environ):
        return ["blackhole" if emulated.startswith(("P", "BH")) else "wormhole_b0", "default"]
    cards = sorted(sysfs.glob("*/device/device"))
    archs = [_ARCHS.get(card.read_text(encoding="ascii").strip(), "") for card in cards]
    known = next(filter(None, archs), "")
    return [f"{known}-{len(cards)}card", known, "default"] if known else ["default"]


def launch_entry(metadata: Metadata, keys: Iterable[str]) -> tuple[str, Launch] | None:
    """The first of ``keys`` that the launch map has, with its entry."""
    return next(((key, metadata.launch[key]) for key in keys if key in metadata.launch), None)


def server_words(command: Sequence[str]) -> list[str]:
    """The words of a launch command after the program: a script, a module or ``vllm serve``."""
    words = list(command)
    if "serve" in words:
        return words[words.index("serve") + 1 :]
    script = next((i for i, word in enumerate(words) if os.path.splitext(word)[1] == ".py"), None)  # noqa: PTH122
    if script is None:
        script = words.index("-m") + 1 if "-m" in words else 0
    return words[script + 1 :]


def is_flag(word: str) -> bool:
    """Whether a word of a command line is a flag; a negative number is none."""
    return word.startswith("-") and word[1:2] not in ("", *"0123456789.")


def parse_options(words: Sequence[str]) -> tuple[str | None, Options]:
    """The model that the words name, by position or with --model, and their flags; ``_`` is ``-`` in a flag."""
    options: Options = {}
    model, flag = None, None
    for word in words:
        if is_flag(word):
            name, equals, value = word.partition("=")
            flag = name.split(".", 1)[0].replace("_", "-") + name[len(name.split(".", 1)[0]) :]
            options[flag] = [value] if equals else []
        elif flag is None:
            model = word
        else:
            options[flag].append(word)
    given = options.pop("--model", None)
    return (given[0] if given else model), options
