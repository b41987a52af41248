"""How requests are spread: one engine whose batch is lanes x rows per lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.config import LaneShape
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["fold", "lane_shape"]


def fold(config: VllmConfig) -> None:
    """Settle the lanes: one lane of ``max_num_seqs`` rows."""
    keep(config, lanes=1, rows_per_lane=config.scheduler_config.max_num_seqs)


def lane_shape(config: VllmConfig) -> LaneShape:
    """The lanes of a settled configuration."""
    state = state_of(config)
    return LaneShape(state["lanes"], state["rows_per_lane"])
