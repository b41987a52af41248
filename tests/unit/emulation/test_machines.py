"""Every emulated machine, opened with the real ttnn."""

import pytest
from sandbox import Case, Sandbox, runtime_shared_memory

from vllm_tt.emulation import MACHINES
from vllm_tt.mesh import EMULATED

CLUSTERS = {
    "N150": "N150",
    "P100": "P100",
    "P150": "P150",
    "N300": "N300",
    "P300": "P300",
    "P150x2": "P150_X2",
    "N150x4": "N150",
    "P150x4": "P150_X4",
    "P300x2": "P300_X2",
    "T3K": "T3K",
    "2xT3K": "N300",
    "P150x8": "P150_X8",
    "TG": "GALAXY",
    "BH-Galaxy": "BLACKHOLE_GALAXY",
}
"""What the runtime takes each machine for."""

FABRICS = {"N150": (), "P100": (), "P150": (), "TG": ("FABRIC_1D_RING",), "BH-Galaxy": ("FABRIC_2D_TORUS_XY",)}
"""Fabrics to open each machine with; FABRIC_1D where nothing is said."""

OPEN = """
import ttnn
from vllm_tt import emulation
emulation.install_stand_ins(ttnn)
result = [ttnn.cluster.get_cluster_type().name, ttnn.get_num_devices()]
for fabric in ["DISABLED", *{fabrics}]:
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    mesh = ttnn.open_mesh_device(ttnn.MeshShape({rows}, {cols}), trace_region_size=1000000)
    submeshes = mesh.create_submeshes(ttnn.MeshShape({rows}, 1))
    ttnn.event_synchronize(ttnn.record_event(submeshes[-1], 0))
    result += [sorted(mesh.get_device_ids()), len(submeshes)]
    for submesh in submeshes:
        ttnn.close_mesh_device(submesh)
    ttnn.close_mesh_device(mesh)
    mesh = submeshes = submesh = None
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory, emulation_cache):
    """The outcome of opening each machine, and what that left behind."""
    sandbox = Sandbox(tmp_path_factory.mktemp("machines"), emulation_cache)
    shared = runtime_shared_memory()
    outcomes = sandbox.run_cases(
        {
            name: Case(
                code=OPEN.format(rows=grid.rows, cols=grid.cols, fabrics=FABRICS.get(name, ("FABRIC_1D",))),
                environ={"TT_EMULATE": name},
            )
            for name, grid in EMULATED.items()
        }
    )
    return outcomes, sandbox.left_behind(), runtime_shared_memory() - shared


@pytest.mark.parametrize("name", MACHINES)
def test_the_runtime_recognises_and_opens_the_machine(opened, name):
    grid = EMULATED[name]
    opens = [list(range(grid.chips)), grid.cols]
    outcome = opened[0][name]
    assert outcome.error is None
    assert outcome.result == [CLUSTERS[name], grid.chips] + opens * (1 + len(FABRICS.get(name, ("FABRIC_1D",))))


def test_nothing_is_left_behind(opened):
    assert opened[1:] == ([], set())
