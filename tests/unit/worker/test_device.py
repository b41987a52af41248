"""Meshes opened and closed by the worker's code, on the real ttnn and emulated machines."""

import subprocess
import sys

import pytest
from sandbox import Case, Sandbox, runtime_shared_memory

from vllm_tt.worker.device import TtnnBroken, TtnnMissing, load_ttnn

START = """
import os, signal, threading
import ttnn
from vllm_tt.config import TTConfig
from vllm_tt.worker import device

def open_mesh(tracing=True, **options):
    return device.open_mesh(TTConfig.from_additional_config({"tt": options}), tracing=tracing)

def fabric():
    return ttnn.get_fabric_config().name

"""

OPEN_AND_CLOSE = """
mesh = open_mesh()
result = [list(mesh.device.shape), str(mesh.grid), fabric()]
mesh.close()
result.append(fabric())
"""

CASES = {
    "N300": Case(code=OPEN_AND_CLOSE),
    "N150": Case(code=OPEN_AND_CLOSE, environ={"TT_EMULATE": "N150"}),
    "T3K": Case(code=OPEN_AND_CLOSE, environ={"TT_EMULATE": "T3K", "MESH_DEVICE": "(2,4)"}),
    "TG": Case(code=OPEN_AND_CLOSE, environ={"TT_EMULATE": "TG"}),
    "BH-Galaxy": Case(code=OPEN_AND_CLOSE, environ={"TT_EMULATE": "BH-Galaxy", "MESH_DEVICE": "BH-Galaxy"}),
    "visible": Case(
        code=OPEN_AND_CLOSE,
        environ={"TT_EMULATE": "TG", "MESH_DEVICE": "TG", "TT_VISIBLE_DEVICES": "0,1,2,3"},
    ),
    "log": Case(
        code="""
open_mesh(worker_l1_size=1344544, dispatch_core_axis="col", fabric_reliability_mode="RELAXED_INIT").close()
""",
        environ={"TT_EMULATE": "T3K"},
    ),
    "log of one chip": Case(
        code="open_mesh(tracing=False, dispatch_core_axis='row', fabric_config='FABRIC_2D').close()",
        environ={"TT_EMULATE": "P150"},
    ),
    "max payload": Case(
        code="""
mesh = open_mesh(fabric_max_packet_payload_size_bytes=4096)
result = [ttnn.get_tt_fabric_max_payload_size_bytes()]
mesh.close()
mesh = open_mesh()
result.append(ttnn.get_tt_fabric_max_payload_size_bytes())
mesh.close()
"""
    ),
    "submeshes and reopening": Case(
        code="""
result = []
for _ in range(3):
    mesh = open_mesh()
    submeshes = mesh.device.create_submeshes(ttnn.MeshShape(1, 1))
    nested = submeshes[0].create_submesh(ttnn.MeshShape(1, 1))
    result.append(len(submeshes))
    submeshes = nested = None
    mesh.close()
"""
    ),
    "closing twice": Case(
        code="""
mesh = open_mesh()
result = [mesh.close(), mesh.close()]
try:
    mesh.device
except device.MeshIsClosed as error:
    result.append(str(error))
"""
    ),
    "closing from threads": Case(
        code="""
mesh = open_mesh()
threads = [threading.Thread(target=mesh.close) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
result = fabric()
"""
    ),
    "a close that is interrupted": Case(
        code="""
mesh = open_mesh()
read = ttnn.ReadDeviceProfiler
def interrupted(device):
    raise SystemExit
ttnn.ReadDeviceProfiler = interrupted
result = []
try:
    mesh.close()
except SystemExit:
    result.append(fabric())
mesh.close()
result.append(fabric())
"""
    ),
    "SIGTERM while open": Case(
        code="""
mesh = open_mesh()
try:
    signal.raise_signal(signal.SIGTERM)
except SystemExit as end:
    result = end.code
"""
    ),
    "signals during a close": Case(
        code="""
mesh = open_mesh()
result = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: result.append(signal.Signals(number).name))
close = ttnn.close_mesh_device
def interrupted(device):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    close(device)
    result.append("closed")
ttnn.close_mesh_device = interrupted
mesh.close()
result.append(fabric())
"""
    ),
    "SIGTERM after a close": Case(
        code="""
result = [signal.getsignal(signal.SIGTERM).name]
open_mesh().close()
result.append(signal.getsignal(signal.SIGTERM).name)
"""
    ),
    "after a close": Case(
        code="""
mesh = open_mesh()
result = ["open"]
mesh.after_close(lambda: result.append(fabric()))
mesh.close()
mesh.close()
"""
    ),
    "a close that fails": Case(
        code="""
mesh = open_mesh()
mesh.after_close(open_mesh)
def broken(device):
    raise RuntimeError("profiler is stuck")
ttnn.ReadDeviceProfiler = broken
mesh.close()
result = fabric()
"""
    ),
    "a forked child": Case(
        code="""
mesh = open_mesh()
child = os.fork()
if child == 0:
    mesh.close()
    os._exit(0 if mesh.device.get_num_devices() == 2 else 1)
result = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), fabric()]
mesh.close()
"""
    ),
    "left open": Case(code="mesh = open_mesh()"),
    "too large": Case(code="open_mesh()", environ={"MESH_DEVICE": "T3K"}),
    "wrong form": Case(code="open_mesh()", environ={"TT_EMULATE": "TG", "MESH_DEVICE": "(2,16)"}),
    "unknown fabric": Case(code="open_mesh(fabric_config='FABRIC_3D')"),
    "fabric of a failed open": Case(
        code="""
try:
    open_mesh(worker_l1_size=1500000000)
except device.MeshNotOpened as error:
    result = [str(error), fabric()]
open_mesh().close()
"""
    ),
    "payload too large": Case(code="open_mesh(fabric_max_packet_payload_size_bytes=8192)"),
    "no device and no emulation": Case(code="del os.environ['TT_METAL_MOCK_CLUSTER_DESC_PATH']; open_mesh()"),
    "no descriptor": Case(code="open_mesh()", environ={"TT_METAL_MOCK_CLUSTER_DESC_PATH": "/nowhere/cluster.yaml"}),
}


CANNOT_OPEN = "The 1x2 mesh could not be opened, the machine is N300 (2 chips): "


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, emulation_cache):
    sandbox = Sandbox(tmp_path_factory.mktemp("device"), emulation_cache)
    outcomes = sandbox.run_cases(
        {name: Case(code=START + case.code, environ=case.environ) for name, case in CASES.items()}
    )
    assert sandbox.left_behind() == []
    return outcomes


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("N300", [[1, 2], "1x2", "FABRIC_1D", "DISABLED"]),
        ("N150", [[1, 1], "1x1", "DISABLED", "DISABLED"]),
        ("T3K", [[2, 4], "2x4", "FABRIC_1D", "DISABLED"]),
        ("TG", [[8, 4], "8x4", "FABRIC_1D_RING", "DISABLED"]),
        ("BH-Galaxy", [[8, 4], "8x4", "FABRIC_2D_TORUS_XY", "DISABLED"]),
        ("visible", [[1, 4], "1x4", "FABRIC_1D_RING", "DISABLED"]),
        ("max payload", [4096, 4352]),
        ("submeshes and reopening", [2, 2, 2]),
        ("closing twice", [None, None, "The mesh device has been closed."]),
        ("closing from threads", "DISABLED"),
        ("a close that is interrupted", ["FABRIC_1D", "DISABLED"]),
        ("SIGTERM while open", 143),
        ("signals during a close", ["closed", "SIGINT", "SIGTERM", "DISABLED"]),
        ("SIGTERM after a close", ["SIG_DFL", "SIG_DFL"]),
        ("after a close", ["open", "DISABLED"]),
        ("a close that fails", "DISABLED"),
        ("a forked child", [0, "FABRIC_1D"]),
        (
            "fabric of a failed open",
            [
                CANNOT_OPEN + "Worker L1 size 1500000000 is larger than max size 1463968.",
                "DISABLED",
            ],
        ),
    ],
)
def test_meshes(outcomes, name, result):
    outcome = outcomes[name]
    assert (outcome.error, outcome.status) == (None, 0)
    assert outcome.result == result


ATTEMPT = "INFO Attempting to open mesh device with grid shape "
CLOSED = "INFO Mesh device closed, fabric is DISABLED"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "log",
            [
                ATTEMPT + "(1, 8): T3K (8 chips), fabric FABRIC_1D RELAXED_INIT, "
                "trace_region_size 50000000, worker_l1_size 1344544",
                "INFO multidevice with 8 devices and grid (1, 8) is created",
                CLOSED,
            ],
        ),
        (
            "log of one chip",
            [
                "INFO fabric_config FABRIC_2D is ignored: a mesh of one chip has no fabric",
                "INFO dispatch_core_axis row is ignored: Blackhole dispatches from a column",
                ATTEMPT + "(1, 1): P150 (1 chip), no fabric, default sizes",
                "INFO multidevice with 1 devices and grid (1, 1) is created",
                CLOSED,
            ],
        ),
    ],
)
def test_what_the_log_says(outcomes, name, lines):
    assert [line for line in outcomes[name].log if "mulat" not in line and "late" not in line] == lines


@pytest.mark.parametrize(
    "name",
    [
        "closing twice",
        "closing from threads",
        "a close that is interrupted",
        "SIGTERM while open",
        "signals during a close",
        "left open",
    ],
)
def test_a_mesh_is_closed_once(outcomes, name):
    assert outcomes[name].log[-1] == CLOSED
    assert outcomes[name].log.count(CLOSED) == 1


def test_a_close_that_fails_says_what_and_goes_on(outcomes):
    assert outcomes["a close that fails"].log[-2:] == [
        "WARNING Could not read the device profiler",
        "ERROR The mesh device is given up: could not read the device profiler",
    ]


WAYS_OUT = (
    "To serve on Tenstorrent devices, check that the driver sees them (ls /dev/tenstorrent; tt-smi). "
    "To serve without devices, set TT_EMULATE=N300 (or another mesh name)."
)

ERRORS = {
    "too large": (
        "MeshTooLarge: MESH_DEVICE=T3K asks for 1x8 = 8 chips, the machine is N300 (2 chips). "
        'What fits here: N150, N300, or any grid of at most 2 chips such as "(1,2)".'
    ),
    "wrong form": (
        "MeshNotOpened: The 2x16 mesh could not be opened, the machine is GALAXY (32 chips): Requested mesh is too "
        "big and is not rotatable: MeshShape([2, 16]) and SystemMesh MeshShape([8, 4]), offset MeshCoordinate([0, 0])."
    ),
    "unknown fabric": (
        "UnknownFabric: fabric_config FABRIC_3D is not a fabric of this ttnn. Use one of DISABLED, FABRIC_1D, "
        "FABRIC_1D_RING, FABRIC_1D_NEIGHBOR_EXCHANGE, FABRIC_2D, FABRIC_2D_TORUS_XY, FABRIC_2D_TORUS_X, "
        "FABRIC_2D_TORUS_Y, CUSTOM."
    ),
    "payload too large": (
        f"MeshNotOpened: {CANNOT_OPEN}Requested packet size 8192 exceeds maximum 7616 for wormhole_b0."
    ),
    "no device and no emulation": (
        f"NoDevice: No Tenstorrent device can be used: No chips detected in the cluster. {WAYS_OUT}"
    ),
    "no descriptor": (
        "NoDevice: No Tenstorrent device can be used: Cluster descriptor file does not exist at path: "
        f"/nowhere/cluster.yaml. {WAYS_OUT}"
    ),
}


@pytest.mark.parametrize(("name", "message"), ERRORS.items())
def test_errors(outcomes, name, message):
    assert outcomes[name].error == message


def test_ttnn_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ttnn", None)
    with pytest.raises(TtnnMissing) as error:
        load_ttnn()
    assert str(error.value) == (
        "The Tenstorrent runtime (the Python package ttnn) is not installed. To serve on Tenstorrent devices, start "
        "from a tt-metal environment. To serve without devices, pip install ttnn and set TT_EMULATE=N300 "
        "(or another mesh name)."
    )


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise ImportError('libtt_metal.so: cannot open')", "ImportError: libtt_metal.so: cannot open"),
        ("import a_module_of_another_build", "ModuleNotFoundError: No module named 'a_module_of_another_build'"),
        ("None.tensor", "AttributeError: 'NoneType' object has no attribute 'tensor'"),
    ],
)
def test_ttnn_is_broken(monkeypatch, tmp_path, source, cause):
    (tmp_path / "ttnn.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ttnn", raising=False)
    with pytest.raises(TtnnBroken) as error:
        load_ttnn()
    assert str(error.value) == (
        f"The Tenstorrent runtime (the Python package ttnn) is installed but does not load: {cause}. Repair the "
        "installation (pip install --force-reinstall ttnn, or rebuild tt-metal with this Python); it is needed to "
        "serve on Tenstorrent devices and with TT_EMULATE alike."
    )


ENDS = """
import logging, multiprocessing, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
from vllm_tt import emulation
emulation.prepare()
from vllm_tt.config import TTConfig
from vllm_tt.worker.device import load_ttnn, open_mesh

def child():
    mesh = open_mesh(TTConfig(), tracing=True)

load_ttnn()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print("child", process.exitcode, file=sys.stderr)
mesh = open_mesh(TTConfig(), tracing=True)
raise ValueError("the engine is dead")
"""


def test_a_process_without_a_home_loads_ttnn(sandbox):
    code = "from vllm_tt import emulation; emulation.prepare(); from vllm_tt.worker import device; device.load_ttnn()"
    environ = {name: value for name, value in sandbox.environ(TT_EMULATE="N300").items() if name != "HOME"}
    subprocess.run([sys.executable, "-c", code], env=environ, cwd=sandbox.cwd, check=True)


def test_every_end_of_a_process_closes_the_mesh(sandbox):
    """A forked child that ends, and a process that dies of an error."""
    shared = runtime_shared_memory()
    status, _, err = sandbox.run("-c", ENDS, TT_EMULATE="N300")
    assert status == 1, err
    lines = [line for line in err.splitlines() if line.startswith(("Mesh", "child", "ValueError"))]
    closed = CLOSED.removeprefix("INFO ")
    assert lines == [closed, "child 0", "ValueError: the engine is dead", closed]
    assert sandbox.left_behind() == []
    assert runtime_shared_memory() <= shared
