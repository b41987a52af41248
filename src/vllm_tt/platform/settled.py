"""What the platform has settled about a configuration, kept where every process reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["STATE_KEY", "is_settled", "keep", "state_of"]

STATE_KEY = "_vllm_tt"
"""The key of ``additional_config`` that holds derived, JSON-serialisable state."""


def is_settled(config: VllmConfig) -> bool:
    """Whether the platform's hooks have been through this configuration before."""
    return STATE_KEY in (config.additional_config or {})


def keep(config: VllmConfig, **facts: Any) -> None:
    """Add ``facts``, which JSON can write, to what is settled."""
    given = config.additional_config or {}
    config.additional_config = {**given, STATE_KEY: {**given.get(STATE_KEY, {}), **facts}}


def state_of(config: VllmConfig) -> dict[str, Any]:
    """What is settled."""
    state: dict[str, Any] = config.additional_config[STATE_KEY]
    return state
