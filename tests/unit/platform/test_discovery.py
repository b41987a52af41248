"""The look at a machine's devices, with the real runtime on emulated machines; and the names of what is found."""

from __future__ import annotations

import os
import sys

import pytest

from vllm_tt.mesh import MeshGrid
from vllm_tt.platform import discovery
from vllm_tt.platform.discovery import DeviceGroup, discover, named_groups


def found(boards, *groups):
    return {"boards": boards, "mesh": "2x4", "groups": [{"boards": list(group), "grid": [1, 4]} for group in groups]}


@pytest.mark.parametrize(
    ("visible", "named"), [(None, ((0, 1), (2, 3))), ((4, 5, 6, 7), ((4, 5), (6, 7))), ((9, 8, 2, 0), ((0, 2), (8, 9)))]
)
def test_boards_are_named_as_the_operator_names_them(visible, named):
    assert named_groups(found(4, (0, 1), (2, 3)), visible) == tuple(DeviceGroup(ids, MeshGrid(1, 4)) for ids in named)


NEEDS = "--data-parallel-size 2 needs 2 groups of devices, one for each engine, and they were not found: "


@pytest.mark.parametrize(
    ("what", "visible", "message"),
    [
        (
            found(2, (0, 1), (1,)),
            (4, 6),
            (
                "--data-parallel-size 2 splits the 2x4 mesh inside the board with device id 6: a process opens a "
                "board as a whole. Use fewer engines, or a mesh (MESH_DEVICE) whose equal parts are whole boards."
            ),
        ),
        (found(1, (0,), (0,)), (0, 4), f"{NEEDS}TT_VISIBLE_DEVICES=0,4 names 2 devices of 1 boards."),
    ],
    ids=["half a board", "chips of one board"],
)
def test_refuses(what, visible, message):
    with pytest.raises(ValueError) as caught:
        named_groups(what, visible)
    assert str(caught.value) == message


@pytest.fixture
def emulate(monkeypatch):
    def use(machine, mesh=""):
        monkeypatch.setenv("TT_EMULATE", machine)
        monkeypatch.setenv("MESH_DEVICE", mesh)
        monkeypatch.delenv("TT_VISIBLE_DEVICES", raising=False)

    return use


def test_two_t3ks(emulate):
    emulate("2xT3K")
    before, loaded = dict(os.environ), set(sys.modules)
    assert discover(2, None) == (
        DeviceGroup((0, 1, 2, 3), MeshGrid(2, 4)),
        DeviceGroup((4, 5, 6, 7), MeshGrid(2, 4)),
    )
    assert dict(os.environ) == before
    assert "ttnn" not in set(sys.modules) - loaded


def test_a_galaxy_is_four_rings_in_the_runtimes_order(emulate):
    emulate("TG", "TG")
    rings = discover(4, None)
    assert [ring.devices for ring in rings] == [tuple(range(first, 32, 4)) for first in (0, 2, 3, 1)]
    assert {ring.grid for ring in rings} == {MeshGrid(1, 8)}


def test_the_visible_half_of_a_machine(emulate):
    emulate("P150x8")
    assert discover(2, (4, 5, 6, 7)) == (DeviceGroup((4, 5), MeshGrid(1, 2)), DeviceGroup((6, 7), MeshGrid(1, 2)))


def test_the_helpers_fault_is_the_cause(emulate):
    emulate("T3K")
    with pytest.raises(ValueError) as caught:
        discover(3, None)
    assert str(caught.value) == (
        "--data-parallel-size 3 needs 3 groups of devices, one for each engine, and they were not found: 3 ranks do "
        "not divide the 2x4 mesh of T3K (8 chips) into equal grids."
    )


@pytest.mark.parametrize(
    ("code", "seconds", "how"),
    [
        ("import time; print('Looking', flush=True); time.sleep(60)", 1.0, "did not finish in 1 s"),
        ("print('Looking'); raise SystemExit(3)", 60.0, "ended with exit code 3"),
    ],
    ids=["slow", "crashing"],
)
def test_a_helper_that_fails_says_how(tmp_path, monkeypatch, code, seconds, how):
    (tmp_path / "slow_helper.py").write_text(code)
    monkeypatch.setattr(discovery, "HELPER", "slow_helper")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ValueError) as caught:
        discover(2, None, seconds=seconds)
    assert str(caught.value) == f"{NEEDS}the process that looks for them {how}; it last said: Looking."
