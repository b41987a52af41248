"""What the installed vLLM knows by name, read from its source: importing it takes seconds."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from vllm_tt.bundle.source import find_module

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["vllm_architectures", "vllm_parsers"]

_ARCHITECTURE = re.compile(r'^\s+"([A-Za-z_]\w*)":', re.MULTILINE | re.ASCII)
_PARSER = re.compile(r'^\s+"([\w.-]+)": *\(', re.MULTILINE | re.ASCII)
_PARSERS = {"tool": "vllm.tool_parsers", "reasoning": "vllm.reasoning"}


@lru_cache(maxsize=1)
def vllm_architectures() -> frozenset[str]:
    """The names in vLLM's model tables; empty when vLLM is not installed."""
    return _names("vllm.model_executor.models.registry", _ARCHITECTURE)


@lru_cache(maxsize=2)
def vllm_parsers(kind: Literal["tool", "reasoning"]) -> frozenset[str]:
    """The parsers of model output that vLLM registers itself; empty when they cannot be read."""
    return _names(_PARSERS[kind], _PARSER)


def _names(module: str, entry: re.Pattern[str]) -> frozenset[str]:
    file = find_module(module, None)
    try:
        text = file.read_text(encoding="utf-8") if file is not None else ""
    except (OSError, ValueError):
        return frozenset()
    return frozenset(entry.findall(text))
