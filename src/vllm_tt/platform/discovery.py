"""The device groups of a machine, one for each engine of a server: found in a process of its own.

What asks the runtime for its devices keeps them, so neither the server nor its engines may ask: a
short-lived helper does, before the engines start.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt import env
from vllm_tt.errors import ConfigError
from vllm_tt.mesh import MeshGrid

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DeviceGroup", "GroupsNotFound", "SharedBoard", "discover", "named_groups"]

SECONDS = 300.0
"""How long a large machine may take to open its mesh for the first time."""
HELPER = "vllm_tt.worker.device_groups"

_MAX_RESULT = 1 << 20
_TAIL = 4096


class GroupsNotFound(ConfigError):
    """--data-parallel-size {ranks} needs {ranks} groups of devices, one for each engine, and they were not found:
    {cause}.
    """


class SharedBoard(ConfigError):
    """--data-parallel-size {ranks} splits the {mesh} mesh inside the board with device id {board}: a process opens a
    board as a whole. Use fewer engines, or a mesh (MESH_DEVICE) whose equal parts are whole boards.
    """


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The devices of one engine."""

    devices: tuple[int, ...]
    """Ids as TT_VISIBLE_DEVICES takes them: those of boards that this host reaches over PCIe."""
    grid: MeshGrid | None = None
    """Their mesh; None leaves it to MESH_DEVICE."""

    def __str__(self) -> str:
        return ",".join(map(str, self.devices))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeviceGroup:
        return cls(tuple(data["devices"]), MeshGrid(*data["grid"]) if data["grid"] else None)

    def to_dict(self) -> dict[str, Any]:
        grid = [self.grid.rows, self.grid.cols] if self.grid else None
        return {"devices": list(self.devices), "grid": grid}


def discover(ranks: int, visible: tuple[int, ...] | None, *, seconds: float = SECONDS) -> tuple[DeviceGroup, ...]:
    """The groups of ``ranks`` engines among the ``visible`` devices (None: all), in the order of the ranks."""
    environ = dict(os.environ)
    if visible is not None:
        environ[env.VISIBLE_DEVICES.name] = ",".join(map(str, visible))
    with tempfile.TemporaryFile() as results, tempfile.TemporaryFile() as output:
        ended = _run([str(ranks)], results.fileno(), output.fileno(), environ, seconds)
        results.seek(0)
        text = results.read(_MAX_RESULT)
        output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
        said = output.read().decode(errors="replace").split("\n")
    if ended is not None:
        last = next((line.strip() for line in reversed(said) if line.strip()), "nothing")
        raise GroupsNotFound(ranks=ranks, cause=f"the process that looks for them {ended}; it last said: {last}")
    found = json.loads(text)
    if "fault" in found:
        raise GroupsNotFound(ranks=ranks, cause=found["fault"].rstrip("."))
    return named_groups(found, visible)


def named_groups(found: Mapping[str, Any], visible: tuple[int, ...] | None) -> tuple[DeviceGroup, ...]:
    """The helper's groups under the ids that the operator uses.

    The runtime numbers the visible boards from 0 on, in the order of their ids.
    """
    groups, ranks = found["groups"], len(found["groups"])
    names = range(found["boards"]) if visible is None else sorted(set(visible))
    if len(names) != found["boards"]:
        cause = f"TT_VISIBLE_DEVICES={','.join(map(str, names))} names {len(names)} devices of {found['boards']} boards"
        raise GroupsNotFound(ranks=ranks, cause=cause)
    used: set[int] = set()
    for group in groups:
        if shared := used.intersection(group["boards"]):
            raise SharedBoard(ranks=ranks, mesh=found["mesh"], board=names[min(shared)])
        used.update(group["boards"])
    return tuple(
        DeviceGroup(tuple(names[board] for board in group["boards"]), MeshGrid(*group["grid"])) for group in groups
    )


def _run(arguments: list[str], results: int, output: int, environ: dict[str, str], seconds: float) -> str | None:
    """How the helper ended; None when it did as it should."""
    process = subprocess.Popen(
        [sys.executable, "-m", HELPER, *arguments, str(results)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(results,),
    )
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"did not finish in {seconds:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    return None if code == 0 else f"ended with exit code {code}"
