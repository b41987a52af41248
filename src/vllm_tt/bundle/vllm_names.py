"""The architectures that the installed vLLM knows, read from its source: importing it takes seconds."""

from __future__ import annotations

import re
from functools import lru_cache

from vllm_tt.bundle.source import find_module

__all__ = ["vllm_architectures"]

_ENTRY = re.compile(r'^\s+"([A-Za-z_]\w*)":', re.MULTILINE | re.ASCII)


@lru_cache(maxsize=1)
def vllm_architectures() -> frozenset[str]:
    """The names in vLLM's model tables; empty when vLLM is not installed."""
    file = find_module("vllm.model_executor.models.registry", None)
    try:
        text = file.read_text(encoding="utf-8") if file is not None else ""
    except (OSError, ValueError):
        return frozenset()
    return frozenset(_ENTRY.findall(text))
