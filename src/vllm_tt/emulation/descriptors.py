"""Cluster descriptors of the machines that can be emulated.

A descriptor tells the runtime what it would otherwise ask the driver: chips, boards, ethernet links
and harvested cores. One builder covers every machine, a grid of chips with ethernet links between
neighbours; it is written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["BOARDS", "MACHINES", "Board", "Machine"]

Cell = tuple[int, int]

NORTH, SOUTH, WEST, EAST = range(4)
"""The groups of ethernet channels of a chip, in channel order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Board:
    """A product as the runtime's board types know it."""

    name: str
    arch: str
    code: int
    """The board type once more, as bits 36 and up of a board id; the two must agree."""
    harvested: int
    """Mask of the Tensix rows (Wormhole) or columns (Blackhole) that are switched off."""
    chips: int | None = 1
    """Chips on one board, side by side in a row; None when the board is the whole machine."""
    eth_harvested: int = 0x120
    dram_harvested: int = 0
    trays: tuple[int, ...] = ()
    """High nibbles of the PCIe bus ids of a Galaxy's four trays."""

    @property
    def blackhole(self) -> bool:
        return self.arch == "blackhole"


_WORMHOLE, _BLACKHOLE = "wormhole_b0", "blackhole"

BOARDS: dict[str, Board] = {
    board.name: board
    for board in (
        Board(name="n150", arch=_WORMHOLE, code=0x18, harvested=0b1),
        Board(name="n300", arch=_WORMHOLE, code=0x14, harvested=0b11, chips=2),
        Board(name="ubb", arch=_WORMHOLE, code=0x35, harvested=0, chips=None, trays=(0xC0, 0x80, 0x00, 0x40)),
        # a P100 has no ethernet ports and seven DRAM banks
        Board(name="p100", arch=_BLACKHOLE, code=0x43, harvested=0b11, eth_harvested=0x3FFF, dram_harvested=0b1000),
        Board(name="p150", arch=_BLACKHOLE, code=0x41, harvested=0b11),
        Board(name="p300", arch=_BLACKHOLE, code=0x45, harvested=0b11, chips=2),
        Board(
            name="ubb_blackhole",
            arch=_BLACKHOLE,
            code=0x47,
            harvested=0b1,
            chips=None,
            trays=(0x00, 0x40, 0xC0, 0x80),
        ),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A grid of chips: what is on the boards and how they are cabled."""

    board: str
    rows: int
    cols: int
    links: int = 2
    """Ethernet links between two neighbours."""
    pcie_cols: tuple[int, ...] | None = None
    """Columns whose chips have PCIe; the others are reached over ethernet. None: all have it."""
    torus: bool = False
    """Whether opposite edges are linked."""

    def descriptor(self) -> dict[str, Any]:
        """The cluster descriptor; the runtime recognises the machine from it."""
        board = BOARDS[self.board]
        chips = self._chip_numbers()
        boards = self._boards(chips, board)
        places = {
            chip: (number, place) for number, on_board in enumerate(boards) for place, chip in enumerate(on_board)
        }
        found: dict[str, Any] = {
            "arch": dict.fromkeys(places, board.arch),
            "boards": [
                [{"board_id": (board.code << 36) + number}, {"board_type": board.name}, {"chips": on_board}]
                for number, on_board in enumerate(boards)
            ],
            "chips_with_mmio": [{chip: chip} for cell, chip in chips.items() if self._has_pcie(cell)],
            "ethernet_connections": self._links(chips),
            "harvesting": {chip: _harvesting(board, place) for chip, (_, place) in places.items()},
        }
        if self.pcie_cols is not None:  # chips behind ethernet are addressed by coordinates
            found["chips"] = {chip: [number, place, 0, 0] for chip, (number, place) in places.items()}
        if self.board == "p300":
            found["asic_locations"] = {chip: place for chip, (_, place) in places.items()}
        if board.trays:
            found["chip_to_bus_id"] = {chip: _bus_id(board.trays, cell) for cell, chip in chips.items()}
        return found

    def to_json(self) -> str:
        return json.dumps(self.descriptor())

    def _has_pcie(self, cell: Cell) -> bool:
        return self.pcie_cols is None or cell[1] in self.pcie_cols

    def _chip_numbers(self) -> dict[Cell, int]:
        """The chip of each cell: row by row, those with PCIe first, as the driver library counts."""
        cells = [(row, col) for row in range(self.rows) for col in range(self.cols)]
        return {cell: chip for chip, cell in enumerate(sorted(cells, key=lambda cell: not self._has_pcie(cell)))}

    def _boards(self, chips: dict[Cell, int], board: Board) -> list[list[int]]:
        """The chips of each board."""
        width = board.chips or len(chips)
        numbers = [chips[cell] for cell in sorted(chips)]
        return [sorted(numbers[first : first + width]) for first in range(0, len(numbers), width)]

    def _links(self, chips: dict[Cell, int]) -> list[list[dict[str, int]]]:
        found = []
        for (row, col), chip in chips.items():
            for beyond, side, other_side in (((row + 1, col), SOUTH, NORTH), ((row, col + 1), EAST, WEST)):
                cell = self._at(beyond)
                if cell is None:
                    continue
                found += [
                    [
                        {"chip": chip, "chan": side * self.links + link},
                        {"chip": chips[cell], "chan": other_side * self.links + link},
                    ]
                    for link in range(self.links)
                ]
        return found

    def _at(self, cell: Cell) -> Cell | None:
        """A cell or, one step over the edge of a torus, the one that the link comes out at."""
        row, col = cell
        if row < self.rows and col < self.cols:
            return cell
        around = self.cols if row < self.rows else self.rows
        return (row % self.rows, col % self.cols) if self.torus and around > 2 else None


def _harvesting(board: Board, place: int) -> dict[str, Any]:
    found: dict[str, Any] = {"noc_translation": True, "harvest_mask": board.harvested}
    if board.blackhole:
        found["eth_harvesting_mask"] = board.eth_harvested
        # one of the two PCIe tiles is in use; which one follows from the place on the board
        found["pcie_harvesting_mask"] = 1 if board.trays or (board.name == "p300" and place) else 2
        if board.dram_harvested:
            found["dram_harvesting_mask"] = board.dram_harvested
    return found


def _bus_id(trays: tuple[int, ...], cell: Cell) -> str:
    """The PCIe bus id of a Galaxy's chip: four mirrored trays of 4 x 2 chips, tray plus place on it."""
    row, col = cell
    tray = trays[row // 4 + 2 * (col // 2)]
    return f"0x{tray + min(col, 3 - col) * 4 + min(row, 7 - row) + 1:04x}"


MACHINES: dict[str, Machine] = {
    "N150": Machine(board="n150", rows=1, cols=1),
    "P100": Machine(board="p100", rows=1, cols=1),
    "P150": Machine(board="p150", rows=1, cols=1),
    "N300": Machine(board="n300", rows=1, cols=2, pcie_cols=(0,)),
    "P300": Machine(board="p300", rows=1, cols=2),
    "P150x2": Machine(board="p150", rows=1, cols=2, links=3),
    "N150x4": Machine(board="n150", rows=2, cols=2),
    "P150x4": Machine(board="p150", rows=2, cols=2, links=3),
    "P300x2": Machine(board="p300", rows=2, cols=2),
    # PCIe is in the middle columns: that is how the runtime tells a T3K from loose N300 cards
    "T3K": Machine(board="n300", rows=2, cols=4, pcie_cols=(1, 2)),
    "2xT3K": Machine(board="n300", rows=4, cols=4, pcie_cols=(1, 2)),
    "P150x8": Machine(board="p150", rows=2, cols=4),
    # the ring fabrics of an 8 x 4 grid need the links between opposite edges
    "TG": Machine(board="ubb", rows=8, cols=4, links=4, torus=True),
    "BH-Galaxy": Machine(board="ubb_blackhole", rows=8, cols=4, torus=True),
}
"""The machine behind each mesh name. "TG" is the Wormhole Galaxy of 32 chips with PCIe each (6U)."""
