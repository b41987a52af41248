"""The stand-ins on the real ttnn: without them these calls end the process."""

import signal

import pytest
from sandbox import Case, Sandbox, runtime_shared_memory

OPENED = """
import os, tempfile, threading
import ttnn
from vllm_tt import emulation
emulation.install_stand_ins(ttnn)
emulation.install_stand_ins(ttnn)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))

def message(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)

"""

CASES = {
    "a capture runs its operations and a replay nothing": """
import torch
one = ttnn.from_torch(torch.ones(32, 32, dtype=torch.bfloat16), layout=ttnn.TILE_LAYOUT, device=mesh)
result = [ttnn.is_trace_capture_active(mesh)]
trace = ttnn.begin_trace_capture(mesh, cq_id=0)
two = ttnn.add(one, one)
result += [ttnn.is_trace_capture_active(mesh), list(two.shape)]
ttnn.end_trace_capture(mesh, trace, cq_id=0)
result += [ttnn.is_trace_capture_active(mesh), type(trace).__name__]
for blocking in (True, False):
    result.append(ttnn.execute_trace(mesh, trace, cq_id=0, blocking=blocking))
ttnn.release_trace(mesh, trace)
""",
    "two traces": """
first = ttnn.begin_trace_capture(mesh)
ttnn.end_trace_capture(mesh, first)
second = ttnn.begin_trace_capture(mesh)
ttnn.end_trace_capture(mesh, second)
ttnn.release_trace(mesh, first)
result = [message(RuntimeError, ttnn.execute_trace, mesh, trace) is None for trace in (first, second)]
""",
    "misuse": """
trace = ttnn.begin_trace_capture(mesh, cq_id=0)
result = [
    message(RuntimeError, ttnn.begin_trace_capture, mesh, cq_id=0),
    message(RuntimeError, ttnn.end_trace_capture, mesh, ttnn.MeshTraceId(77), cq_id=0),
    message(RuntimeError, ttnn.execute_trace, mesh, trace, cq_id=0, blocking=False),
]
ttnn.end_trace_capture(mesh, trace, cq_id=0)
ttnn.release_trace(mesh, trace)
ttnn.release_trace(mesh, trace)
result += [
    message(RuntimeError, ttnn.execute_trace, mesh, trace),
    message(TypeError, ttnn.wait_for_event, 0, "event"),
]
""",
    "waiting for an event": """
event = ttnn.record_event(mesh, 0)
result = [ttnn.wait_for_event(0, event), ttnn.wait_for_event(cq_id=0, mesh_event=event)]
""",
    "more events than a queue has room for": """
events = [ttnn.record_event(mesh, cq_id=0) for _ in range(10_000)]
for event in events:
    ttnn.event_synchronize(event)
column = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 0))
of_one = ttnn.record_event(mesh_device=mesh, device_range=column)
result = [type(events[-1]).__name__, type(of_one).__name__, message(TypeError, ttnn.record_event) is not None]
""",
    "an operation on all cores": """
import torch
one = ttnn.from_torch(torch.ones(512, 512, dtype=torch.bfloat16), layout=ttnn.TILE_LAYOUT, device=mesh)
config = ttnn.DispatchCoreConfig()
result = [list(ttnn.matmul(one, one).shape), config.type.name, config.axis.name]
column = ttnn.DispatchCoreConfig(axis=ttnn.DispatchCoreAxis.COL)
result += [column.type.name, column.axis.name]
""",
    "the temporary folder": """
result = [os.environ["TMPDIR"], tempfile.gettempdir(), ttnn.distributed_context_is_initialized()]
""",
}

REAL = """
import os, ttnn
from vllm_tt import emulation
before = ttnn.execute_trace, ttnn.wait_for_event
del os.environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"]
emulation.install_stand_ins(ttnn)
result = [before == (ttnn.execute_trace, ttnn.wait_for_event), ttnn.distributed_context_is_initialized()]
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, emulation_cache):
    sandbox = Sandbox(tmp_path_factory.mktemp("stand-ins"), emulation_cache)
    cases = {name: Case(code=OPENED + code) for name, code in CASES.items()}
    cases["real devices"] = Case(code=REAL)
    return sandbox.run_cases(cases) | {"sandbox": sandbox}


@pytest.mark.parametrize(
    ("name", "result"),
    [
        (
            "a capture runs its operations and a replay nothing",
            [False, True, [32, 32], False, "MeshTraceId", None, None],
        ),
        ("two traces", [False, True]),
        (
            "misuse",
            [
                "Trace 0 is being captured already on mesh device 0.",
                "Trace 77 is not being captured on mesh device 0.",
                "There is no trace 0 on mesh device 0.",
                "There is no trace 0 on mesh device 0.",
                "wait_for_event needs a ttnn.MeshEvent, found str.",
            ],
        ),
        ("waiting for an event", [None, None]),
        ("more events than a queue has room for", ["MeshEvent", "MeshEvent", True]),
        ("an operation on all cores", [[512, 512], "WORKER", "ROW", "WORKER", "COL"]),
    ],
)
def test_stand_ins(outcomes, name, result):
    assert outcomes[name].error is None
    assert outcomes[name].result == result


def test_mpi_leaves_the_temporary_folder_as_it_was(outcomes):
    temp = str(outcomes["sandbox"].temp)
    assert outcomes["the temporary folder"].result == [temp, temp, True]
    assert outcomes["sandbox"].left_behind() == []


def test_real_devices_keep_the_real_calls(outcomes):
    assert outcomes["real devices"].result == [True, False]


def test_processes_that_start_together_on_an_empty_cache(tmp_path):
    """The first use compiles firmware and fabric; nobody sees another's half-made folder. One of them is killed."""
    sandbox = Sandbox(tmp_path / "sandbox", tmp_path / "cache")
    shared = runtime_shared_memory()
    code = (
        "from vllm_tt import emulation; emulation.prepare(); import ttnn; emulation.install_stand_ins(ttnn)\n"
        "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)\n"
        "mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))\n"
        "print('open', flush=True)\n"
        "input()\n"
        "ttnn.close_mesh_device(mesh)"
    )
    processes = [sandbox.start("-c", code, TT_EMULATE="T3K") for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["open\n"] * 3
    processes[0].kill()
    assert [process.communicate("\n", timeout=60) for process in processes[1:]] == [("", "")] * 2
    processes[0].communicate(timeout=60)
    assert [process.returncode for process in processes] == [-signal.SIGKILL, 0, 0]
    assert len(list((tmp_path / "cache" / "emulation").iterdir())) == 1
    assert sandbox.left_behind() == []
    assert runtime_shared_memory() <= shared
