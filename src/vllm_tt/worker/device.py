"""The mesh device: opened as the settings say, closed once on every way out.

This is the first place in a process to import ttnn. What is wrong with the library or the machine
is said here.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt import emulation
from vllm_tt.errors import ConfigError, TTError
from vllm_tt.log import get_logger
from vllm_tt.worker import signals
from vllm_tt.worker.mesh_settings import FabricSettings, Machine, MeshSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_tt.config import TTConfig
    from vllm_tt.mesh import MeshGrid

__all__ = [
    "MeshIsClosed",
    "MeshNotOpened",
    "NoDevice",
    "OpenMesh",
    "TtnnBroken",
    "TtnnMissing",
    "UnknownFabric",
    "cause_of",
    "load_ttnn",
    "machine_of",
    "open_mesh",
]

log = get_logger(__name__)


class TtnnMissing(TTError):
    """The Tenstorrent runtime (the Python package ttnn) is not installed.
    To serve on Tenstorrent devices, start from a tt-metal environment. To serve without devices,
    pip install ttnn and set TT_EMULATE=N300 (or another mesh name).
    """


class TtnnBroken(TTError):
    """The Tenstorrent runtime (the Python package ttnn) is installed but does not load: {cause}.
    Repair the installation (pip install --force-reinstall ttnn, or rebuild tt-metal with this Python); it is
    needed to serve on Tenstorrent devices and with TT_EMULATE alike.
    """


class NoDevice(TTError):
    """No Tenstorrent device can be used: {cause}.
    To serve on Tenstorrent devices, check that the driver sees them (ls /dev/tenstorrent; tt-smi).
    To serve without devices, set TT_EMULATE=N300 (or another mesh name).
    """


class UnknownFabric(ConfigError):
    """fabric_config {name} is not a fabric of this ttnn. Use one of {known}."""


class MeshNotOpened(TTError):
    """The {grid} mesh could not be opened, the machine is {machine}: {cause}."""


class MeshIsClosed(TTError):
    """The mesh device has been closed."""


def open_mesh(config: TTConfig, *, tracing: bool, group: MeshGrid | None = None) -> OpenMesh:
    """Open the mesh that the options and the environment ask for.

    tracing: whether traces will be captured, which need a region of DRAM; group: the grid of the
    visible devices where they were chosen as one group of a larger mesh.
    """
    ttnn = load_ttnn()
    machine = machine_of(ttnn)
    settings = MeshSettings.choose(config, machine, tracing=tracing, environ=os.environ, group=group)
    for note in settings.notes:
        log.info("%s", note)
    log.info(
        "Attempting to open mesh device with grid shape (%d, %d): %s, %s, %s",
        settings.grid.rows,
        settings.grid.cols,
        machine,
        f"fabric {settings.fabric.config} {settings.fabric.reliability}" if settings.fabric else "no fabric",
        ", ".join(f"{name} {size}" for name, size in settings.sizes.items()) or "default sizes",
    )
    mesh = OpenMesh(ttnn, settings, machine)
    log.info(
        "multidevice with %d devices and grid (%d, %d) is created",
        mesh.device.get_num_devices(),
        settings.grid.rows,
        settings.grid.cols,
    )
    return mesh


def load_ttnn() -> Any:
    """The imported library, safe to use on an emulated machine; raises TtnnMissing or TtnnBroken."""
    if "HOME" not in os.environ:
        # the library reads it as it loads, without looking whether it is set: a segmentation fault
        os.environ["HOME"] = _home()
    try:
        import ttnn
    except ModuleNotFoundError as error:
        if error.name == "ttnn":
            raise TtnnMissing from error
        raise TtnnBroken(cause=f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise TtnnBroken(cause=f"{type(error).__name__}: {error}") from error
    emulation.install_stand_ins(ttnn)
    return ttnn


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:  # a user without an entry; containers say the same
        return "/"


def machine_of(ttnn: Any) -> Machine:
    """The machine that ttnn sees; raises NoDevice when it sees none."""
    try:
        chips = ttnn.get_num_devices()
    except RuntimeError as error:
        raise NoDevice(cause=cause_of(error)) from error
    if chips == 0:
        raise NoDevice(cause="ttnn finds no chip")
    return Machine(cluster=ttnn.cluster.get_cluster_type().name, chips=chips)


class OpenMesh:
    """An open mesh device. It closes itself when the process exits."""

    def __init__(self, ttnn: Any, settings: MeshSettings, machine: Machine) -> None:
        self.grid = settings.grid
        self._ttnn = ttnn
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._device: Any = _open(ttnn, settings, machine)
        self._to_do: list[tuple[str, Callable[[], object]]] = [
            ("read the device profiler", self._read_profiler),
            ("close the submeshes", self._close_submeshes),
            ("close the mesh device", self._close_device),
            ("report", self._report),
        ]
        if settings.fabric is not None:
            self._to_do.insert(-1, ("reset the fabric", lambda: _reset_fabric(ttnn)))
        self._failed: list[str] = []
        # the processes that vLLM forks or spawns run multiprocessing's finalizers only, not atexit's;
        # atexit comes first elsewhere, before ttnn takes itself apart
        signals.exit_on_sigterm()
        self._at_exit = Finalize(None, self.close, exitpriority=100)
        atexit.register(self.close)

    @property
    def device(self) -> Any:
        """The ``ttnn.MeshDevice``; to be fetched from here where it is needed, not kept."""
        if self._device is None:
            raise MeshIsClosed
        return self._device

    def after_close(self, step: Callable[[], object]) -> None:
        """Have ``step`` run once when the mesh has been closed without a fault, on whichever way out."""
        self._to_do.append(("tell that the mesh is closed", lambda: self._failed or step()))

    def close(self) -> None:
        """Close what is still open. Never raises; a second call waits for a first one in another thread.

        Signals wait until it is done. In a forked child nothing happens: the mesh is the parent's.
        """
        if os.getpid() != self._process:
            return
        with signals.held(), self._lock:
            while self._to_do:
                what, step = self._to_do.pop(0)
                try:
                    step()
                except Exception:
                    self._failed.append(what)
                    log.warning("Could not %s", what, exc_info=True)
            atexit.unregister(self.close)
            self._at_exit.cancel()
        signals.leave_sigterm()

    def _read_profiler(self) -> None:
        self._ttnn.ReadDeviceProfiler(self._device)

    def _close_submeshes(self) -> None:
        for submesh in _submeshes(self._device):
            self._ttnn.close_mesh_device(submesh)

    def _close_device(self) -> None:
        # the last reference goes before another mesh may be opened: ttnn would close the new one's chips
        device, self._device = self._device, None
        self._ttnn.close_mesh_device(device)

    def _report(self) -> None:
        if self._failed:
            log.error("The mesh device is given up: could not %s", ", ".join(self._failed))
        else:
            log.info("Mesh device closed, fabric is %s", self._ttnn.get_fabric_config().name)


def _open(ttnn: Any, settings: MeshSettings, machine: Machine) -> Any:
    axis = settings.dispatch_axis
    try:
        if settings.fabric is not None:
            _set_fabric(ttnn, settings.fabric)
        with _fabric_reset_on_failure(ttnn, settings.fabric):
            return ttnn.open_mesh_device(
                ttnn.MeshShape(settings.grid.rows, settings.grid.cols),
                dispatch_core_config=ttnn.DispatchCoreConfig(axis=axis and getattr(ttnn.DispatchCoreAxis, axis)),
                **settings.sizes,
            )
    except RuntimeError as error:
        raise MeshNotOpened(grid=settings.grid, machine=machine, cause=cause_of(error)) from error


@contextmanager
def _fabric_reset_on_failure(ttnn: Any, fabric: FabricSettings | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if fabric is not None:
            try:
                _reset_fabric(ttnn)
            except RuntimeError as error:
                log.warning("Could not reset the fabric: %s", cause_of(error))
        raise


def _set_fabric(ttnn: Any, fabric: FabricSettings) -> None:
    config = getattr(ttnn.FabricConfig, fabric.config, None)
    if config is None:
        raise UnknownFabric(name=fabric.config, known=", ".join(member.name for member in ttnn.FabricConfig))
    reliability = getattr(ttnn.FabricReliabilityMode, fabric.reliability)
    if fabric.max_payload is None:
        ttnn.set_fabric_config(config, reliability)
    elif hasattr(ttnn, "FabricRouterConfig"):
        router = ttnn.FabricRouterConfig()
        router.max_packet_payload_size_bytes = fabric.max_payload
        ttnn.set_fabric_config(config, reliability, router_config=router)
    else:
        log.warning("fabric_max_packet_payload_size_bytes is ignored: this ttnn cannot configure its routers")
        ttnn.set_fabric_config(config, reliability)


def _reset_fabric(ttnn: Any) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def _submeshes(device: Any) -> Iterator[Any]:
    """All submeshes, each before the one it is part of."""
    for submesh in device.get_submeshes():
        yield from _submeshes(submesh)
        yield submesh


def cause_of(error: Exception) -> str:
    """What ttnn has to say, without source lines and backtrace."""
    text = re.split(r"\n(?:backtrace|Location):", str(error))[0]
    _, found, info = text.partition("info:\n")
    return " ".join((info if found else text).split()).rstrip(".")
