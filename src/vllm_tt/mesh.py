"""The mesh grids that ``MESH_DEVICE`` names, and the fabric each machine needs.

Names and grids are those of tt-metal's serving scripts (tt_transformers' demo configuration).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_tt.errors import ConfigError

__all__ = ["BLACKHOLE", "EMULATED", "MESH_GRIDS", "WORMHOLE", "MeshGrid", "MeshNameError"]


class MeshNameError(ConfigError):
    """MESH_DEVICE={value!r} is not a mesh. Use one of {known}, or a grid such as "(2,4)"."""


@dataclass(frozen=True, slots=True)
class MeshGrid:
    """A grid of chips: rows x columns."""

    rows: int
    cols: int

    @property
    def chips(self) -> int:
        return self.rows * self.cols

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"

    @classmethod
    def parse(cls, value: str) -> MeshGrid:
        """The grid of a mesh name or of ``"(rows,cols)"``."""
        if grid := MESH_GRIDS.get(value):
            return grid
        if found := re.fullmatch(r"\(?\s*([1-9]\d{0,3})\s*[,x]\s*([1-9]\d{0,3})\s*\)?", value):
            return cls(int(found[1]), int(found[2]))
        raise MeshNameError(value=value, known=", ".join(MESH_GRIDS))


MESH_GRIDS: dict[str, MeshGrid] = {
    "N150": MeshGrid(1, 1),
    "P100": MeshGrid(1, 1),
    "P150": MeshGrid(1, 1),
    "N300": MeshGrid(1, 2),
    "P300": MeshGrid(1, 2),
    "P150x2": MeshGrid(1, 2),
    "N150x4": MeshGrid(1, 4),
    "P150x4": MeshGrid(1, 4),
    "P300x2": MeshGrid(1, 4),
    "T3K": MeshGrid(1, 8),
    "P150x8": MeshGrid(1, 8),
    "TG": MeshGrid(8, 4),
    "BH-Galaxy": MeshGrid(8, 4),
}

EMULATED: dict[str, MeshGrid] = {**MESH_GRIDS, "2xT3K": MeshGrid(4, 4)}
"""The machines that TT_EMULATE names, each with all its chips; two T3Ks in one host are cabled as a square."""

WORMHOLE = ("N150", "N300", "N150x4", "T3K", "TG")
BLACKHOLE = ("P100", "P150", "P300", "P150x2", "P150x4", "P300x2", "P150x8", "BH-Galaxy")
"""The names by the chip of their machines."""
