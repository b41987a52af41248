"""How requests are spread: one engine whose batch is lanes x rows per lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.config import LaneShape, TTConfig
from vllm_tt.errors import ConfigError
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_tt.contract import Capabilities

__all__ = ["COORDINATOR", "NoLanes", "fold", "lane_shape"]

COORDINATOR = "vllm_tt.scheduler.lanes.TTLaneCoordinator"


class NoLanes(ConfigError):
    """tt.lanes {lanes} is not available: {model} does not declare supports_lanes, so an instance of it serves one
    batch. Leave it out and use --max-num-seqs for a larger batch.
    """


def fold(config: VllmConfig, model: str, capabilities: Capabilities) -> None:
    """Settle the lanes, each with ``max_num_seqs`` rows."""
    lanes = TTConfig.from_additional_config(config.additional_config).lanes or 1
    if lanes > 1:
        if not capabilities.supports_lanes:
            raise NoLanes(lanes=lanes, model=model)
        config.scheduler_config.scheduler_cls = COORDINATOR
    keep(config, lanes=lanes, rows_per_lane=config.scheduler_config.max_num_seqs)


def lane_shape(config: VllmConfig) -> LaneShape:
    """The lanes of a settled configuration."""
    state = state_of(config)
    return LaneShape(state["lanes"], state["rows_per_lane"])
