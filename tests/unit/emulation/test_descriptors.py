import json
from collections import Counter

import pytest

from vllm_tt.emulation.descriptors import BOARDS, MACHINES
from vllm_tt.mesh import EMULATED


def neighbours(descriptor):
    """How many other chips each chip has links to."""
    pairs = {(a["chip"], b["chip"]) for a, b in descriptor["ethernet_connections"]}
    return Counter(chip for pair in pairs for chip in pair)


def test_every_name_has_a_machine_of_its_size():
    assert {name: machine.rows * machine.cols for name, machine in MACHINES.items()} == {
        name: grid.chips for name, grid in EMULATED.items()
    }


@pytest.mark.parametrize("name", MACHINES)
def test_boards_hold_each_chip_once_and_code_their_type(name):
    descriptor = MACHINES[name].descriptor()
    chips = []
    for number, (board_id, board_type, on_board) in enumerate(descriptor["boards"]):
        assert board_id["board_id"] == (BOARDS[board_type["board_type"]].code << 36) + number
        chips += on_board["chips"]
    assert sorted(chips) == sorted(descriptor["arch"]) == sorted(descriptor["harvesting"]) == list(range(len(chips)))


@pytest.mark.parametrize("name", MACHINES)
def test_no_channel_is_used_twice(name):
    ends = [(end["chip"], end["chan"]) for link in MACHINES[name].descriptor()["ethernet_connections"] for end in link]
    assert len(ends) == len(set(ends))


@pytest.mark.parametrize("name", MACHINES)
def test_a_descriptor_survives_json(name):
    text = MACHINES[name].to_json()
    assert json.dumps(json.loads(text)) == text


def test_chips_of_a_t3k_with_pcie_have_three_neighbours_and_come_first():
    descriptor = MACHINES["T3K"].descriptor()
    assert descriptor["chips_with_mmio"] == [{0: 0}, {1: 1}, {2: 2}, {3: 3}]
    assert neighbours(descriptor) == Counter({0: 3, 1: 3, 2: 3, 3: 3, 4: 2, 5: 2, 6: 2, 7: 2})
    assert descriptor["chips"] == {
        0: [0, 0, 0, 0],
        4: [0, 1, 0, 0],
        1: [1, 0, 0, 0],
        5: [1, 1, 0, 0],
        2: [2, 0, 0, 0],
        6: [2, 1, 0, 0],
        3: [3, 0, 0, 0],
        7: [3, 1, 0, 0],
    }


@pytest.mark.parametrize(("name", "links"), [("TG", 4), ("BH-Galaxy", 2)])
def test_a_galaxy_is_a_torus(name, links):
    descriptor = MACHINES[name].descriptor()
    assert set(neighbours(descriptor).values()) == {4}
    assert len(descriptor["ethernet_connections"]) == 2 * 32 * links


def test_a_galaxy_tells_its_trays_by_bus_id():
    ids = MACHINES["TG"].descriptor()["chip_to_bus_id"]
    assert len(set(ids.values())) == 32
    assert [ids[chip] for chip in (0, 1, 2, 3, 28, 31)] == ["0x00c1", "0x00c5", "0x0005", "0x0001", "0x0081", "0x0041"]


@pytest.mark.parametrize(
    ("name", "chip", "masks"),
    [
        ("N150", 0, {"harvest_mask": 0b1}),
        ("P100", 0, {"harvest_mask": 0b11, "eth": 0x3FFF, "pcie": 2, "dram": 8}),
        ("P150x4", 3, {"harvest_mask": 0b11, "eth": 0x120, "pcie": 2}),
        ("P300", 0, {"harvest_mask": 0b11, "eth": 0x120, "pcie": 2}),
        ("P300", 1, {"harvest_mask": 0b11, "eth": 0x120, "pcie": 1}),
        ("BH-Galaxy", 31, {"harvest_mask": 0b1, "eth": 0x120, "pcie": 1}),
    ],
)
def test_harvesting(name, chip, masks):
    names = {"eth": "eth_harvesting_mask", "pcie": "pcie_harvesting_mask", "dram": "dram_harvesting_mask"}
    expected = {"noc_translation": True} | {names.get(key, key): mask for key, mask in masks.items()}
    assert MACHINES[name].descriptor()["harvesting"][chip] == expected
