"""``python -m vllm_tt.worker.device_groups RANKS DESCRIPTOR``: splits the machine's mesh into equal parts.

Opens the mesh, looks at the chips of each part, and closes it again; opening it is what tells how the
chips are linked. The result is one JSON object on the descriptor: ``boards``, ``mesh`` and ``groups``
(each the boards of its chips, and its grid), or ``fault``, the text of an error.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from vllm_tt import emulation, env
from vllm_tt.errors import ConfigError, TTError
from vllm_tt.mesh import MESH_GRIDS, MeshGrid
from vllm_tt.worker.device import MeshNotOpened, cause_of, load_ttnn, machine_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.worker.mesh_settings import Machine

__all__ = ["UnevenRanks", "asked_grid", "in_order", "main", "part_of"]

_GALAXY, _PARENT = MESH_GRIDS["TG"], MeshGrid(4, 8)
"""A Galaxy is split as four rows of eight: its rings."""

_ORDER = {("GALAXY", _PARENT, 4): (0, 2, 3, 1)}
"""tt-metal counts the four meshes of a Wormhole Galaxy in this order."""


class UnevenRanks(ConfigError):
    """{ranks} ranks do not divide the {grid} mesh of {machine} into equal grids"""


def main(arguments: list[str]) -> None:
    """Write the result, and end without running anybody's exit handlers."""
    ranks, descriptor = int(arguments[0]), int(arguments[1])
    try:
        result = _split(ranks)
    except TTError as error:
        result = {"fault": str(error)}
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(result, file)
    os._exit(0)


def _split(ranks: int) -> dict[str, Any]:
    emulation.prepare()
    ttnn = load_ttnn()
    machine = machine_of(ttnn)
    asked = asked_grid(machine, os.environ)
    try:
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(asked.rows, asked.cols) if asked else None)
    except RuntimeError as error:
        raise MeshNotOpened(grid=asked or "whole", machine=machine, cause=cause_of(error)) from error
    try:
        grid = MeshGrid(*mesh.shape)
        part = part_of(grid, ranks, machine)
        lying = part if asked else MeshGrid(*sorted((part.rows, part.cols)))
        parts = in_order(mesh.create_submeshes(ttnn.MeshShape(part.rows, part.cols)), machine, grid)
        groups = [[ttnn.GetPCIeDeviceID(chip) for chip in one.get_device_ids()] for one in parts]
        for one in parts:
            ttnn.close_mesh_device(one)
    finally:
        ttnn.close_mesh_device(mesh)
    return {
        "boards": ttnn.GetNumPCIeDevices(),
        "mesh": str(grid),
        "groups": [{"boards": sorted(set(boards)), "grid": [lying.rows, lying.cols]} for boards in groups],
    }


def asked_grid(machine: Machine, environ: Mapping[str, str]) -> MeshGrid | None:
    """The mesh to split; None is all chips, in the shape that the runtime gives them."""
    named = environ.get(env.MESH_DEVICE.name, "").strip()
    asked = env.MESH_DEVICE.get(environ)
    if asked is not None and asked.chips > machine.chips and env.VISIBLE_DEVICES.get(environ) is not None:
        asked = None
    if asked is None and machine.default_grid == _GALAXY:
        return _PARENT
    return _PARENT if asked == _GALAXY and named in MESH_GRIDS else asked


def part_of(grid: MeshGrid, ranks: int, machine: Machine) -> MeshGrid:
    """The grid of each of ``ranks`` equal parts: whole rows as far as they go, then parts of rows."""
    rows = math.gcd(grid.rows, ranks)
    if grid.cols % (ranks // rows):
        raise UnevenRanks(ranks=ranks, grid=grid, machine=machine)
    return MeshGrid(grid.rows // rows, grid.cols // (ranks // rows))


def in_order(parts: list[Any], machine: Machine, grid: MeshGrid) -> list[Any]:
    """The parts in the order of the ranks."""
    order = _ORDER.get((machine.cluster, grid, len(parts)), range(len(parts)))
    return [parts[number] for number in order]


if __name__ == "__main__":
    main(sys.argv[1:])
