"""How requests are spread: one engine whose batch is lanes x rows per lane.

What is settled is kept in ``additional_config`` under one private key, so that every process reads
the same shape; a repeated hook finds it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.config import LaneShape

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["STATE_KEY", "fold", "is_settled", "lane_shape"]

STATE_KEY = "_vllm_tt"
"""The key of ``additional_config`` that holds derived, JSON-serialisable state."""


def fold(config: VllmConfig) -> None:
    """Settle the lanes, once: one lane of ``max_num_seqs`` rows."""
    if not is_settled(config):
        shape = {"lanes": 1, "rows_per_lane": config.scheduler_config.max_num_seqs}
        config.additional_config = {**(config.additional_config or {}), STATE_KEY: shape}


def is_settled(config: VllmConfig) -> bool:
    """Whether the platform's hooks have been through this configuration before."""
    return STATE_KEY in (config.additional_config or {})


def lane_shape(config: VllmConfig) -> LaneShape:
    """The lanes of a settled configuration."""
    state = config.additional_config[STATE_KEY]
    return LaneShape(state["lanes"], state["rows_per_lane"])
