"""Which devices each engine of a server gets, and what disagrees with them."""

from __future__ import annotations

import os

import pytest

from vllm_tt.mesh import MeshGrid
from vllm_tt.platform import ranks
from vllm_tt.platform.discovery import DeviceGroup

TWO = (DeviceGroup((0, 1), MeshGrid(1, 4)), DeviceGroup((2, 3), MeshGrid(1, 4)))


@pytest.fixture
def discovery(monkeypatch):
    """Stands in for the look at the machine; what it was asked."""
    asked = []

    def discover(count, visible):
        asked.append((count, visible))
        return TWO

    monkeypatch.setattr(ranks, "discover", discover)
    monkeypatch.delenv("TT_VISIBLE_DEVICES", raising=False)
    return asked


@pytest.fixture
def spread(make_config):
    def settle(size=2, device_ids=None, servers=0, **parts):
        config = make_config(
            parallel={
                "data_parallel_size": size,
                "data_parallel_size_local": size,
                "assigned_physical_gpu_ids": device_ids,
                **({"_api_process_count": servers, "_api_process_rank": servers - 1} if servers else {}),
            },
            additional_config={"_vllm_tt": {}},
            **parts,
        )
        ranks.spread(config)
        return config

    return settle


def test_one_engine_opens_what_it_sees(spread, discovery):
    config = spread(1)
    assert ranks.device_groups(config) == ()
    assert ranks.bind(config) is None
    assert discovery == []
    assert "TT_VISIBLE_DEVICES" not in os.environ


def test_one_engine_sees_the_devices_that_are_listed(spread, discovery, monkeypatch):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "0")
    config = spread(1, device_ids=[4, 5])
    assert ranks.bind(config) == DeviceGroup((4, 5))
    assert os.environ["TT_VISIBLE_DEVICES"] == "4,5"
    assert discovery == []


@pytest.mark.parametrize(
    ("environ", "listed", "asked"),
    [(None, None, None), ("0, 1,2,3", None, (0, 1, 2, 3)), ("3,2,1,0,0", None, (3, 2, 1, 0, 0))]
    + [(given, [1, 0, 3, 2], (1, 0, 3, 2)) for given in (None, "0,1,2,3,4,5")],
)
def test_each_engine_sees_its_group(spread, discovery, monkeypatch, environ, listed, asked):
    if environ is not None:
        monkeypatch.setenv("TT_VISIBLE_DEVICES", environ)
    else:
        monkeypatch.setenv("TT_VISIBLE_DEVICES", "")
    config = spread(2, device_ids=listed)
    assert discovery == [(2, asked)]
    assert ranks.device_groups(config) == TWO
    for rank in (1, 0):
        config.parallel_config.data_parallel_index = rank
        assert ranks.bind(config) == TWO[rank]
        assert os.environ["TT_VISIBLE_DEVICES"] == str(TWO[rank])


def test_a_further_front_end_does_not_look(spread, discovery):
    assert ranks.device_groups(spread(2, servers=2)) == ()
    assert discovery == []


DISAGREE = "disagrees with the device groups of --data-parallel-size 2, which are 0,1 and 2,3: an engine gets a whole"
REFUSED = {
    "devices that no engine would use": (
        "0,1,2,3,4",
        None,
        f"TT_VISIBLE_DEVICES 0,1,2,3,4 {DISAGREE} group. Set TT_VISIBLE_DEVICES=0,1,2,3.",
    ),
    "a device an engine": (None, [0, 1], f"--device-ids 0 1 {DISAGREE} group. Write --device-ids 0 1 2 3."),
    "groups of other devices": (
        None,
        [0, 2, 1, 3],
        f"--device-ids 0 2 1 3 {DISAGREE} group. Write --device-ids 0 1 2 3.",
    ),
    "one too many": (None, [0, 1, 2, 3, 4], f"--device-ids 0 1 2 3 4 {DISAGREE} group. Write --device-ids 0 1 2 3."),
    "one for all": (None, [0], f"--device-ids 0 {DISAGREE} group. Write --device-ids 0 1 2 3."),
    "names": (
        "0000:01:00.0,0000:02:00.0",
        None,
        (
            "TT_VISIBLE_DEVICES=0000:01:00.0,0000:02:00.0 cannot be shared out among 2 engines: write it as device "
            "ids, such as 0,1,2,3, or unset it to use all devices."
        ),
    ),
}


@pytest.mark.parametrize(("environ", "listed", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("discovery")
def test_refuses(spread, monkeypatch, environ, listed, message):
    if environ is not None:
        monkeypatch.setenv("TT_VISIBLE_DEVICES", environ)
    with pytest.raises(ValueError) as caught:
        spread(2, device_ids=listed)
    assert str(caught.value) == message


def test_refuses_a_mixture_of_experts(spread, discovery):
    with pytest.raises(ValueError) as caught:
        spread(2, model={"config": {"num_local_experts": 8}})
    assert str(caught.value).startswith("--data-parallel-size 2 is not available for ")
    assert str(caught.value).endswith(
        ", a mixture of experts: vLLM runs the ranks of such a model in lock step, which one engine on one mesh does "
        "not need. Leave out --data-parallel-size; the model spreads its experts over the mesh that MESH_DEVICE names."
    )
    assert discovery == []


def test_a_group_survives_the_settled_state():
    for group in (TWO[1], DeviceGroup((7,))):
        assert DeviceGroup.from_dict(group.to_dict()) == group
