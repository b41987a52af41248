"""What to open on a machine: a pure function of the options, the environment and what is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.errors import ConfigError
from vllm_tt.mesh import MESH_GRIDS, MeshGrid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.config import TTConfig

__all__ = ["TRACE_REGION_SIZE", "FabricSettings", "Machine", "MeshSettings", "MeshTooLarge"]

TRACE_REGION_SIZE = 50_000_000
"""Bytes of DRAM on each chip for traces, unless the options say otherwise."""

_FABRICS = {"GALAXY": "FABRIC_1D_RING", "BLACKHOLE_GALAXY": "FABRIC_2D_TORUS_XY"}
"""By cluster type; other machines of several chips use FABRIC_1D."""

_NO_FABRIC = "DISABLED"


class MeshTooLarge(ConfigError):
    """MESH_DEVICE={value} asks for {grid} = {chips} chips, the machine is {machine}.
    What fits here: {fits}, or any grid of at most {available} chips such as "(1,{available})".
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What the runtime has found."""

    cluster: str
    """A name of ``ttnn.cluster.ClusterType``."""
    chips: int
    """Chips that this process may open."""

    def __str__(self) -> str:
        return f"{self.cluster} ({self.chips} chip{'' if self.chips == 1 else 's'})"

    @property
    def blackhole(self) -> bool:
        return self.cluster.startswith(("P", "BLACKHOLE"))

    @property
    def default_grid(self) -> MeshGrid:
        """All chips: a whole Galaxy as it is built, any other set as one row."""
        galaxy = MESH_GRIDS["TG"]
        return galaxy if self.cluster in _FABRICS and self.chips == galaxy.chips else MeshGrid(1, self.chips)

    @property
    def fitting(self) -> list[str]:
        """The mesh names of this architecture that are small enough."""
        return [
            name
            for name, grid in MESH_GRIDS.items()
            if grid.chips <= self.chips and name.startswith(("P", "BH")) == self.blackhole
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricSettings:
    """The links between the chips; the names are ttnn's."""

    config: str
    reliability: str
    max_payload: int | None = None
    """Bytes in a packet; None leaves it to the router."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshSettings:
    """How the mesh is opened."""

    grid: MeshGrid
    fabric: FabricSettings | None
    dispatch_axis: str | None
    """``ROW`` or ``COL``; None leaves it to ttnn."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the regions that are not left to ttnn, by the name of ``open_mesh_device``'s parameter."""
    notes: tuple[str, ...] = ()
    """What was asked for and is not done, with the reason."""

    @classmethod
    def choose(
        cls,
        config: TTConfig,
        machine: Machine,
        *,
        tracing: bool,
        environ: Mapping[str, str],
        group: MeshGrid | None = None,
    ) -> MeshSettings:
        """The settings for ``machine``; ``group`` is the grid of a discovered device group.

        Raises MeshTooLarge when MESH_DEVICE asks for more chips than there are.
        """
        notes: list[str] = []
        grid = group or _grid(machine, environ, notes)
        return cls(
            grid=grid,
            fabric=_fabric(config, machine, grid, notes),
            dispatch_axis=_dispatch_axis(config, machine, notes),
            sizes=_sizes(config, tracing=tracing),
            notes=tuple(notes),
        )


def _grid(machine: Machine, environ: Mapping[str, str], notes: list[str]) -> MeshGrid:
    asked, visible = env.MESH_DEVICE.get(environ), env.VISIBLE_DEVICES.get(environ)
    if asked is None:
        return machine.default_grid
    if asked.chips <= machine.chips:
        return asked
    if visible is None:
        raise MeshTooLarge(
            value=environ[env.MESH_DEVICE.name],
            grid=asked,
            chips=asked.chips,
            machine=machine,
            fits=", ".join(machine.fitting),
            available=machine.chips,
        )
    notes.append(
        f"TT_VISIBLE_DEVICES={visible} leaves {machine}: the mesh is {machine.default_grid}, not MESH_DEVICE's {asked}"
    )
    return machine.default_grid


def _fabric(config: TTConfig, machine: Machine, grid: MeshGrid, notes: list[str]) -> FabricSettings | None:
    asked = config.fabric_config
    if grid.chips == 1:
        if asked not in (None, _NO_FABRIC):
            notes.append(f"fabric_config {asked} is ignored: a mesh of one chip has no fabric")
        return None
    name = asked or _FABRICS.get(machine.cluster, "FABRIC_1D")
    if name == _NO_FABRIC:
        return None
    return FabricSettings(
        config=name,
        reliability=config.fabric_reliability_mode or "STRICT_INIT",
        max_payload=config.fabric_max_packet_payload_size_bytes,
    )


def _dispatch_axis(config: TTConfig, machine: Machine, notes: list[str]) -> str | None:
    if config.dispatch_core_axis == "row" and machine.blackhole:
        notes.append("dispatch_core_axis row is ignored: Blackhole dispatches from a column")
        return "COL"
    return config.dispatch_core_axis.upper() if config.dispatch_core_axis else None


def _sizes(config: TTConfig, *, tracing: bool) -> dict[str, int]:
    traces = TRACE_REGION_SIZE if tracing and config.trace_region_size is None else config.trace_region_size
    asked = {
        "trace_region_size": traces,
        "worker_l1_size": config.worker_l1_size,
        "l1_small_size": config.l1_small_size,
    }
    return {name: size for name, size in asked.items() if size is not None}
