"""Stand-ins for the calls of ttnn that kill a process on a mock device.

Replaying a trace and waiting across command queues write to queues that a mock device does not
have: a segmentation fault, not an exception. With these, a capture just runs its operations, a
replay does nothing, and misuse is an error as on a device. Nothing empties the queue that events
are reported in either: the 8,192nd would wait for ever.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm_tt.emulation.environment import LOGS_VARIABLE, MOCK_VARIABLE
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NotAnEvent", "TraceMisuse", "install_stand_ins"]


class TraceMisuse(TTError, RuntimeError):
    """{what} on mesh device {mesh}."""


class NotAnEvent(TTError, TypeError):
    """wait_for_event needs a ttnn.MeshEvent, found {found}."""


def install_stand_ins(ttnn: Any) -> None:
    """Make the imported ``ttnn`` safe to use on a mock cluster; on real devices do nothing.

    To be called right after the import, before anything asks for devices. A second call does nothing.
    """
    if not os.environ.get(MOCK_VARIABLE) or isinstance(_owner(ttnn.begin_trace_capture), _Traces):
        return
    _start_mpi(ttnn)
    traces = _Traces(ttnn)
    ttnn.begin_trace_capture = traces.begin
    ttnn.end_trace_capture = traces.end
    ttnn.execute_trace = traces.execute
    ttnn.release_trace = traces.release
    ttnn.is_trace_capture_active = traces.is_active
    ttnn.wait_for_event = traces.wait_for_event
    ttnn.record_event = _Events(ttnn.record_event).record
    ttnn.DispatchCoreConfig = _dispatch_from_workers(ttnn)


def _dispatch_from_workers(ttnn: Any) -> Callable[..., Any]:
    """DispatchCoreConfig without dispatch from ethernet cores, N300's and T3K's default.

    Operations on a mock device are checked against the core grid that dispatch from worker cores
    leaves, whatever was opened: with ethernet dispatch they lay out for one row too many.
    """
    make = ttnn.DispatchCoreConfig

    def dispatch_core_config(type: Any = None, axis: Any = None, fabric_tensix_config: Any = None) -> Any:  # noqa: A002
        config = make(type, axis, fabric_tensix_config)
        if config.type != ttnn.DispatchCoreType.ETH:
            return config
        return make(ttnn.DispatchCoreType.WORKER, ttnn.DispatchCoreAxis.ROW, fabric_tensix_config)

    return dispatch_core_config


def _owner(function: Any) -> Any:
    return getattr(function, "__self__", None)


class _Traces:
    """The traces of this process: known when ended, forgotten when released."""

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        self._ids = itertools.count()
        self._captured: set[tuple[int, int]] = set()
        self._open: dict[tuple[int, int], int] = {}
        """The trace being captured, by mesh and command queue."""

    def begin(self, mesh_device: Any, *, cq_id: Any = None) -> Any:
        queue = self._queue(mesh_device, cq_id)
        if queue in self._open:
            raise TraceMisuse(what=f"Trace {self._open[queue]} is being captured already", mesh=mesh_device.id())
        self._open[queue] = trace = next(self._ids)
        return self._ttnn.MeshTraceId(trace)

    def end(self, mesh_device: Any, trace_id: Any, *, cq_id: Any = None) -> None:
        queue = self._queue(mesh_device, cq_id)
        if self._open.get(queue) != int(trace_id):
            raise TraceMisuse(what=f"Trace {int(trace_id)} is not being captured", mesh=mesh_device.id())
        del self._open[queue]
        self._captured.add((mesh_device.id(), int(trace_id)))

    def execute(self, mesh_device: Any, trace_id: Any, *, cq_id: Any = None, blocking: bool = True) -> None:  # noqa: ARG002
        if (mesh_device.id(), int(trace_id)) not in self._captured:
            raise TraceMisuse(what=f"There is no trace {int(trace_id)}", mesh=mesh_device.id())

    def release(self, mesh_device: Any, trace_id: Any) -> None:
        self._captured.discard((mesh_device.id(), int(trace_id)))

    def is_active(self, device: Any) -> bool:
        return any(mesh == device.id() for mesh, _ in self._open)

    def wait_for_event(self, cq_id: Any = None, mesh_event: Any = None) -> None:  # noqa: ARG002
        if not isinstance(mesh_event, self._ttnn.MeshEvent):
            raise NotAnEvent(found=type(mesh_event).__name__)

    def _queue(self, mesh_device: Any, cq_id: Any) -> tuple[int, int]:
        return mesh_device.id(), 0 if cq_id is None else int(cq_id)


class _Events:
    """One event for each mesh and command queue: a mock device has passed every event as soon as it is recorded."""

    def __init__(self, record: Callable[..., Any]) -> None:
        self._record = record
        self._events: dict[tuple[int, int], Any] = {}

    def record(self, mesh_device: Any, cq_id: Any = None, **named: Any) -> Any:
        queue = mesh_device.id(), 0 if cq_id is None else int(cq_id)
        if queue not in self._events:
            self._events[queue] = self._record(mesh_device, cq_id, **named)
        return self._events[queue]


def _start_mpi(ttnn: Any) -> None:
    """Start the runtime's MPI now, with its session folder where it can be taken away again.

    MPI reads TMPDIR when it starts and leaves its folder there for good. Setting TMPDIR for the
    whole process is no way out: sockets of the server live in the temporary folder too, and a long
    path is no valid socket name.
    """
    if not hasattr(ttnn, "init_distributed_context") or ttnn.distributed_context_is_initialized():
        return
    with tempfile.TemporaryDirectory(prefix="mpi-", dir=os.environ.get(LOGS_VARIABLE)) as folder, _tmpdir(folder):
        ttnn.init_distributed_context()


@contextmanager
def _tmpdir(folder: str) -> Iterator[None]:
    tempfile.gettempdir()  # Python remembers its answer: this process's own files stay where they were
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
