"""The environment variables that turn the runtime towards an emulated machine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.emulation.runtime_root import DESCRIPTOR_SUFFIX, EmulationFolder, InstalledTtnn, TtnnNotInstalled
from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOGS_VARIABLE", "MOCK_VARIABLE", "prepare"]

log = get_logger(__name__)

MOCK_VARIABLE = "TT_METAL_MOCK_CLUSTER_DESC_PATH"
"""Where tt-metal looks for the descriptor of a mock cluster."""
LOGS_VARIABLE = "TT_METAL_LOGS_PATH"

_QUIET = {"TT_LOGGER_LEVEL": "off", "LOGURU_LEVEL": "WARNING", "TT_METAL_DISABLE_BACKTRACE": "1"}
"""Set unless the user has said how loud the runtime shall be."""

_LOG_VARIABLES = ("TT_LOGGER_LEVEL", "TT_LOGGER_FILE", "TT_METAL_LOGGER_LEVEL", "TT_METAL_LOGGER_FILE")


def prepare() -> None:
    """When TT_EMULATE names a machine, make this process and its children see it; else do nothing.

    To be called before ttnn is imported. Repeated calls, and calls in children, change nothing.
    A cluster descriptor that the user has set stays; it says which machine is emulated then.
    """
    machine = env.EMULATE.get()
    if machine is None:
        return
    ttnn = InstalledTtnn.find()
    if ttnn is None:
        raise TtnnNotInstalled(machine=machine, prefix=sys.prefix)
    folder = EmulationFolder.ensure(env.CACHE_DIR.get(), ttnn)
    given = os.environ.get(MOCK_VARIABLE, "")
    theirs = given != "" and not given.endswith(DESCRIPTOR_SUFFIX)
    needed = _needed(folder, machine)
    if theirs:
        needed[MOCK_VARIABLE] = given
    changed = {name: value for name, value in needed.items() if os.environ.get(name) != value}
    if not changed:
        return
    if "ttnn" in sys.modules:
        log.warning("TT_EMULATE=%s comes late: ttnn is loaded already and may have looked for real devices", machine)
    os.environ.update(changed | _wished(os.environ))
    if theirs:
        log.info("TT_EMULATE=%s: the cluster descriptor in %s=%s is used as it is", machine, MOCK_VARIABLE, given)
    else:
        log.info("Emulating %s: the runtime runs on this host, kernels do not compute (%s)", machine, folder.path)


def _needed(folder: EmulationFolder, machine: str) -> dict[str, str]:
    """What emulation cannot do without, whatever the user has set for real devices."""
    return {
        MOCK_VARIABLE: str(folder.descriptor(machine)),
        "TT_METAL_RUNTIME_ROOT": str(folder.root),
        # placeholder kernels must never share a cache with real ones
        "TT_METAL_CACHE": f"{folder.kernels}{os.sep}",
        # else the runtime writes ./generated
        LOGS_VARIABLE: str(folder.logs(machine)),
        # else it keeps tables of device memory in /dev/shm, shared by all processes
        "TT_METAL_SHM_TRACKING_DISABLED": "1",
        # else MPI leaves a 16 MiB segment in /dev/shm for each process
        "OMPI_MCA_btl": "self",
    }


def _wished(environ: Mapping[str, str]) -> dict[str, str]:
    """Defaults for what the user has not set."""
    # else each mesh and submesh starts two threads for each chip of the machine
    wished = {"TT_MESH_PASS_THROUGH_THREAD_POOL": "1"} | _QUIET
    if any(name in environ for name in _LOG_VARIABLES):
        del wished["TT_LOGGER_LEVEL"]
    return {name: value for name, value in wished.items() if name not in environ}
