"""How a mesh is split into the grids of ranks."""

from __future__ import annotations

import pytest

from vllm_tt.mesh import MeshGrid
from vllm_tt.worker.device_groups import UnevenRanks, asked_grid, in_order, part_of
from vllm_tt.worker.mesh_settings import Machine

GALAXY = Machine(cluster="GALAXY", chips=32)
T3K = Machine(cluster="T3K", chips=8)


@pytest.mark.parametrize(
    ("grid", "ranks", "part"),
    [
        ((4, 8), 4, (1, 8)),
        ((4, 8), 2, (2, 8)),
        ((4, 8), 8, (1, 4)),
        ((4, 8), 32, (1, 1)),
        ((1, 8), 2, (1, 4)),
        ((2, 4), 2, (1, 4)),
        ((2, 4), 4, (1, 2)),
        ((8, 4), 16, (1, 2)),
        ((3, 4), 6, (1, 2)),
    ],
)
def test_parts(grid, ranks, part):
    assert part_of(MeshGrid(*grid), ranks, GALAXY) == MeshGrid(*part)


@pytest.mark.parametrize(("grid", "ranks"), [((2, 4), 3), ((1, 8), 16), ((4, 8), 12)])
def test_uneven_parts(grid, ranks):
    with pytest.raises(UnevenRanks) as caught:
        part_of(MeshGrid(*grid), ranks, T3K)
    assert str(caught.value) == (
        f"{ranks} ranks do not divide the {grid[0]}x{grid[1]} mesh of T3K (8 chips) into equal grids"
    )


@pytest.mark.parametrize(
    ("machine", "environ", "grid"),
    [
        (T3K, {}, None),
        (T3K, {"MESH_DEVICE": "T3K"}, (1, 8)),
        (T3K, {"MESH_DEVICE": "(2,2)"}, (2, 2)),
        (GALAXY, {}, (4, 8)),
        (GALAXY, {"MESH_DEVICE": "TG"}, (4, 8)),
        (GALAXY, {"MESH_DEVICE": "(8,4)"}, (8, 4)),
        (GALAXY, {"MESH_DEVICE": "T3K"}, (1, 8)),
        (T3K, {"MESH_DEVICE": "TG", "TT_VISIBLE_DEVICES": "0,1,2,3"}, None),
    ],
)
def test_the_mesh_to_split(machine, environ, grid):
    assert asked_grid(machine, environ) == (MeshGrid(*grid) if grid else None)


def test_a_galaxys_rings_are_counted_as_the_runtime_counts_them():
    assert in_order(list("abcd"), GALAXY, MeshGrid(4, 8)) == list("acdb")
    assert in_order(list("abcd"), Machine(cluster="BLACKHOLE_GALAXY", chips=32), MeshGrid(4, 8)) == list("abcd")
    assert in_order(list("ab"), T3K, MeshGrid(2, 4)) == list("ab")
