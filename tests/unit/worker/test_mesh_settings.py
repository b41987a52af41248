import pytest

from vllm_tt.config import TTConfig
from vllm_tt.mesh import MeshGrid
from vllm_tt.worker.mesh_settings import FabricSettings, Machine, MeshSettings, MeshTooLarge

N150 = Machine(cluster="N150", chips=1)
N300 = Machine(cluster="N300", chips=2)
T3K = Machine(cluster="T3K", chips=8)
GALAXY = Machine(cluster="GALAXY", chips=32)
P150 = Machine(cluster="P150", chips=1)
P150_X4 = Machine(cluster="P150_X4", chips=4)
BH_GALAXY = Machine(cluster="BLACKHOLE_GALAXY", chips=32)


def choose(machine, *, options=None, tracing=False, environ=None, group=None):
    config = TTConfig.from_additional_config({"tt": options or {}})
    return MeshSettings.choose(config, machine, tracing=tracing, environ=environ or {}, group=group)


def fabric(name, reliability="STRICT_INIT", max_payload=None):
    return FabricSettings(config=name, reliability=reliability, max_payload=max_payload)


@pytest.mark.parametrize(
    ("machine", "grid"),
    [
        (N150, (1, 1)),
        (N300, (1, 2)),
        (T3K, (1, 8)),
        (P150_X4, (1, 4)),
        (GALAXY, (8, 4)),
        (BH_GALAXY, (8, 4)),
        (Machine(cluster="GALAXY", chips=8), (1, 8)),
        (Machine(cluster="CUSTOM", chips=32), (1, 32)),
    ],
)
def test_without_mesh_device_the_mesh_is_all_there_is(machine, grid):
    assert choose(machine).grid == MeshGrid(*grid)


@pytest.mark.parametrize(
    ("mesh", "grid"), [("T3K", (1, 8)), ("N300", (1, 2)), ("(2,4)", (2, 4)), ("(1, 1)", (1, 1)), ("  N150 ", (1, 1))]
)
def test_mesh_device_names_the_grid(mesh, grid):
    settings = choose(T3K, environ={"MESH_DEVICE": mesh})
    assert (settings.grid, settings.notes) == (MeshGrid(*grid), ())


@pytest.mark.parametrize(
    ("machine", "mesh", "asked", "there"),
    [
        (N300, "T3K", "1x8 = 8 chips", ("N300 (2 chips)", "N150, N300", 2)),
        (P150, "(2,2)", "2x2 = 4 chips", ("P150 (1 chip)", "P100, P150", 1)),
        (T3K, "TG", "8x4 = 32 chips", ("T3K (8 chips)", "N150, N300, N150x4, T3K", 8)),
    ],
)
def test_a_mesh_that_does_not_fit(machine, mesh, asked, there):
    with pytest.raises(MeshTooLarge) as error:
        choose(machine, environ={"MESH_DEVICE": mesh})
    found, fits, chips = there
    assert str(error.value) == (
        f"MESH_DEVICE={mesh} asks for {asked}, the machine is {found}. "
        f'What fits here: {fits}, or any grid of at most {chips} chips such as "(1,{chips})".'
    )


def test_the_grid_follows_visible_devices_that_are_fewer():
    visible = Machine(cluster="GALAXY", chips=8)
    settings = choose(visible, environ={"MESH_DEVICE": "TG", "TT_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"})
    assert settings.grid == MeshGrid(1, 8)
    assert settings.notes == (
        "TT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 leaves GALAXY (8 chips): the mesh is 1x8, not MESH_DEVICE's 8x4",
    )


def test_visible_devices_that_suffice_leave_the_grid_alone():
    settings = choose(T3K, environ={"MESH_DEVICE": "(2,4)", "TT_VISIBLE_DEVICES": "0,1,2,3"})
    assert (settings.grid, settings.notes) == (MeshGrid(2, 4), ())


def test_a_discovered_group_decides_its_grid():
    visible = Machine(cluster="GALAXY", chips=8)
    environ = {"MESH_DEVICE": "TG", "TT_VISIBLE_DEVICES": "0,4,8,12,16,20,24,28"}
    settings = choose(visible, environ=environ, group=MeshGrid(8, 1))
    assert (settings.grid, settings.notes) == (MeshGrid(8, 1), ())


@pytest.mark.parametrize(
    ("machine", "options", "expected"),
    [
        (N150, {}, None),
        (N300, {}, fabric("FABRIC_1D")),
        (T3K, {}, fabric("FABRIC_1D")),
        (P150_X4, {}, fabric("FABRIC_1D")),
        (GALAXY, {}, fabric("FABRIC_1D_RING")),
        (Machine(cluster="GALAXY", chips=8), {}, fabric("FABRIC_1D_RING")),
        (BH_GALAXY, {}, fabric("FABRIC_2D_TORUS_XY")),
        (GALAXY, {"fabric_config": "FABRIC_1D"}, fabric("FABRIC_1D")),
        (T3K, {"fabric_config": "DISABLED"}, None),
        (T3K, {"fabric_reliability_mode": "RELAXED_INIT"}, fabric("FABRIC_1D", "RELAXED_INIT")),
        (T3K, {"fabric_max_packet_payload_size_bytes": 4096}, fabric("FABRIC_1D", max_payload=4096)),
        (N150, {"fabric_reliability_mode": "RELAXED_INIT", "fabric_max_packet_payload_size_bytes": 4096}, None),
    ],
)
def test_fabric(machine, options, expected):
    settings = choose(machine, options=options)
    assert (settings.fabric, settings.notes) == (expected, ())


@pytest.mark.parametrize("environ", [{}, {"MESH_DEVICE": "N150"}])
def test_one_chip_has_no_fabric_whatever_is_asked(environ):
    settings = choose(T3K if environ else N150, options={"fabric_config": "FABRIC_1D"}, environ=environ)
    assert settings.fabric is None
    assert settings.notes == ("fabric_config FABRIC_1D is ignored: a mesh of one chip has no fabric",)


def test_no_fabric_on_one_chip_needs_no_word():
    assert choose(N150, options={"fabric_config": "DISABLED"}).notes == ()


@pytest.mark.parametrize(
    ("machine", "asked", "axis", "notes"),
    [
        (T3K, None, None, ()),
        (T3K, "row", "ROW", ()),
        (T3K, "col", "COL", ()),
        (P150_X4, None, None, ()),
        (P150_X4, "col", "COL", ()),
        (P150_X4, "row", "COL", ("dispatch_core_axis row is ignored: Blackhole dispatches from a column",)),
        (BH_GALAXY, "row", "COL", ("dispatch_core_axis row is ignored: Blackhole dispatches from a column",)),
    ],
)
def test_dispatch_axis(machine, asked, axis, notes):
    settings = choose(machine, options={"dispatch_core_axis": asked})
    assert (settings.dispatch_axis, settings.notes) == (axis, notes)


@pytest.mark.parametrize(
    ("tracing", "options", "sizes"),
    [
        (False, {}, {}),
        (True, {}, {"trace_region_size": 50_000_000}),
        (True, {"trace_region_size": 220_000_000}, {"trace_region_size": 220_000_000}),
        (True, {"trace_region_size": 0}, {"trace_region_size": 0}),
        (False, {"trace_region_size": 27_381_760}, {"trace_region_size": 27_381_760}),
        (
            False,
            {"worker_l1_size": 1_344_544, "l1_small_size": 32_768},
            {"worker_l1_size": 1_344_544, "l1_small_size": 32_768},
        ),
    ],
)
def test_sizes(tracing, options, sizes):
    assert choose(T3K, tracing=tracing, options=options).sizes == sizes
