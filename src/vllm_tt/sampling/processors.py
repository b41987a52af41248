"""Whether logits processors beside vLLM's own are loaded: only the host can run them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import ModelConfig

__all__ = ["has_custom_processors"]

_GROUP = "vllm.logits_processors"


def has_custom_processors(config: ModelConfig) -> bool:
    """From --logits-processors, or from an installed package's entry point."""
    return bool(config.logits_processors) or bool(entry_points(group=_GROUP))
