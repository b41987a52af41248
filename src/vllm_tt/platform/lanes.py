"""Lanes: a data-parallel size folded into one engine whose batch is lanes x rows per lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.config import LaneShape, TTConfig
from vllm_tt.errors import ConfigError
from vllm_tt.mesh import EMULATED
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    from vllm.config import ParallelConfig, VllmConfig

    from vllm_tt.contract import Capabilities
    from vllm_tt.mesh import MeshGrid

__all__ = [
    "COORDINATOR",
    "LanesDiffer",
    "NoLanes",
    "UnevenLanes",
    "check_split",
    "fold",
    "lane_shape",
]

COORDINATOR = "vllm_tt.scheduler.lanes.TTLaneCoordinator"


class NoLanes(ConfigError):
    """tt.lanes {lanes} is not available: {model} does not declare supports_lanes, so an instance of it serves one
    batch. Leave it out and use --max-num-seqs for a larger batch, or --data-parallel-size for several engines.
    """


class LanesDiffer(ConfigError):
    """tt.lanes {lanes} and --data-parallel-size {size} disagree: with {model}, both are the number of lanes of one
    engine. Leave one of them out.
    """


class UnevenLanes(ConfigError):
    """{lanes} lanes do not divide the {chips} chips of the {grid} mesh, of which each lane gets an equal part. Use
    {fitting} lanes, or another mesh (MESH_DEVICE).
    """


def fold(config: VllmConfig, model: str, capabilities: Capabilities) -> None:
    """Settle the lanes, each with ``max_num_seqs`` rows; a data-parallel size that became lanes is 1 from here on."""
    lanes = _lanes(config, model, capabilities)
    if lanes > 1:
        if (grid := _known_grid(config.parallel_config)) is not None:
            check_split(lanes, grid)
        config.scheduler_config.scheduler_cls = COORDINATOR
        _one_engine(config.parallel_config)
    keep(config, lanes=lanes, rows_per_lane=config.scheduler_config.max_num_seqs)


def lane_shape(config: VllmConfig) -> LaneShape:
    """The lanes of a settled configuration."""
    state = state_of(config)
    return LaneShape(state["lanes"], state["rows_per_lane"])


def check_split(lanes: int, grid: MeshGrid) -> None:
    """Raise UnevenLanes unless each lane gets as many chips."""
    if grid.chips % lanes:
        *others, last = [str(count) for count in range(1, grid.chips + 1) if grid.chips % count == 0]
        fitting = f"{', '.join(others)} or {last}" if others else last
        raise UnevenLanes(lanes=lanes, chips=grid.chips, grid=grid, fitting=fitting)


def _lanes(config: VllmConfig, model: str, capabilities: Capabilities) -> int:
    asked = TTConfig.from_additional_config(config.additional_config).lanes
    size = config.parallel_config.data_parallel_size
    if not capabilities.supports_lanes:
        if asked not in (None, 1):
            raise NoLanes(lanes=asked, model=model)
        return 1
    if asked is not None and size > 1 and asked != size:
        raise LanesDiffer(lanes=asked, size=size, model=model)
    return asked or size


def _known_grid(parallel: ParallelConfig) -> MeshGrid | None:
    """The mesh, where the environment tells before the devices are looked at."""
    if env.VISIBLE_DEVICES.get() is not None or parallel.assigned_physical_gpu_ids is not None:
        return None
    machine = env.EMULATE.get()
    return env.MESH_DEVICE.get() or (EMULATED[machine] if machine else None)


def _one_engine(parallel: ParallelConfig) -> None:
    parallel.data_parallel_size = 1
    parallel.data_parallel_size_local = 1
