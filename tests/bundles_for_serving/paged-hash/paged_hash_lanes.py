"""The lanes' parts of the mesh: a submesh each, with a KV cache of its own on it.

An emulated mesh keeps no values, so what lanes compute is kept on the host; here are the runtime's own
submeshes, memory, transfers and events.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["LaneMeshes"]


class LaneMeshes:
    """The submeshes of a mesh that is divided among lanes, in their order.

    With one lane nothing is put on the mesh; without a mesh nothing is done at all.
    """

    def __init__(self, mesh_device: Any, lanes: int) -> None:
        self._parts = _carved(mesh_device, lanes) if mesh_device is not None and lanes > 1 else []
        self._queues = self._parts or ([mesh_device] if mesh_device is not None else [])
        self._caches: list[Any] = []
        self.chips = self._queues[0].get_num_devices() if self._queues else 1
        """Of one lane."""

    def allocate(self, shape: tuple[int, int, int, int]) -> None:
        """A cache of ``shape`` on every lane's chips; raises when they have no room for it."""
        for mesh in self._parts:
            import ttnn

            kind = (ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)
            self._caches.append(ttnn.allocate_tensor_on_device(ttnn.Shape(shape), *kind, mesh, ttnn.DRAM_MEMORY_CONFIG))

    def send(self, page_table: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], slots_per_lane: int) -> None:
        """Each lane's rows of a page table [r, w] to its own chips."""
        for lane, mesh in enumerate(self._parts):
            import ttnn

            rows = page_table[slots // slots_per_lane == lane]
            if len(rows):
                ttnn.from_torch(torch.from_numpy(rows).int(), device=mesh)

    def events(self) -> list[Any]:
        """One event of every lane."""
        if not self._queues:
            return []
        import ttnn

        return [ttnn.record_event(mesh, 0) for mesh in self._queues]


def _carved(mesh_device: Any, lanes: int) -> list[Any]:
    """Equal parts, whole rows first."""
    import ttnn

    rows, cols = mesh_device.shape
    down = math.gcd(rows, lanes)
    parts: list[Any] = mesh_device.create_submeshes(ttnn.MeshShape(rows // down, cols // (lanes // down)))
    assert len(parts) == lanes
    return parts
