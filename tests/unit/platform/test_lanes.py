"""How a data-parallel size folds into lanes, and what cannot be folded."""

from __future__ import annotations

import pytest

from vllm_tt.config import LaneShape
from vllm_tt.contract import Capabilities
from vllm_tt.mesh import MeshGrid
from vllm_tt.platform.lanes import COORDINATOR, check_split, fold, lane_shape

ABLE = Capabilities(supports_lanes=True)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with room for many lanes, and no mesh chosen."""
    monkeypatch.setenv("TT_EMULATE", "TG")
    monkeypatch.delenv("MESH_DEVICE", raising=False)
    monkeypatch.delenv("TT_VISIBLE_DEVICES", raising=False)


def folded(make_config, size=1, capabilities=ABLE, lanes=None, **parts):
    """A configuration after folding."""
    options = {} if lanes is None else {"lanes": lanes}
    config = make_config(
        parallel={"data_parallel_size": size, "data_parallel_size_local": size},
        scheduler={"max_num_seqs": 8},
        additional_config={"tt": options},
        **parts,
    )
    fold(config, "TTProbe", capabilities)
    return config


@pytest.mark.parametrize(
    ("size", "lanes", "expected"),
    [(1, None, 1), (4, None, 4), (1, 4, 4), (4, 4, 4), (1, 1, 1), (32, None, 32)],
)
def test_a_size_or_the_option_becomes_lanes_of_one_engine(make_config, size, lanes, expected):
    config = folded(make_config, size, lanes=lanes)
    assert lane_shape(config) == LaneShape(expected, 8)
    assert (config.parallel_config.data_parallel_size, config.parallel_config.data_parallel_size_local) == (1, 1)
    assert config.scheduler_config.max_num_seqs == 8
    assert (config.scheduler_config.scheduler_cls == COORDINATOR) == (expected > 1)


@pytest.mark.parametrize("lanes", [None, 1])
def test_other_models_keep_their_ranks(make_config, lanes):
    config = folded(make_config, 4, Capabilities(), lanes)
    assert lane_shape(config) == LaneShape(1, 8)
    assert (config.parallel_config.data_parallel_size, config.parallel_config.data_parallel_size_local) == (4, 4)
    assert config.scheduler_config.scheduler_cls is None


REFUSED = {
    "a model without lanes": (
        {"lanes": 2, "capabilities": Capabilities()},
        (
            "tt.lanes 2 is not available: TTProbe does not declare supports_lanes, so an instance of it serves one "
            "batch. Leave it out and use --max-num-seqs for a larger batch, or --data-parallel-size for several "
            "engines."
        ),
    ),
    "two numbers": (
        {"lanes": 2, "size": 4},
        (
            "tt.lanes 2 and --data-parallel-size 4 disagree: with TTProbe, both are the number of lanes of one "
            "engine. Leave one of them out."
        ),
    ),
    "one lane of several": (
        {"lanes": 1, "size": 4},
        (
            "tt.lanes 1 and --data-parallel-size 4 disagree: with TTProbe, both are the number of lanes of one "
            "engine. Leave one of them out."
        ),
    ),
    "more lanes than chips": (
        {"size": 64},
        (
            "64 lanes do not divide the 32 chips of the 8x4 mesh, of which each lane gets an equal part. Use 1, 2, 4, "
            "8, 16 or 32 lanes, or another mesh (MESH_DEVICE)."
        ),
    ),
}


@pytest.mark.parametrize(("parts", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(make_config, parts, message):
    with pytest.raises(ValueError) as caught:
        folded(make_config, **parts)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("environ", "refused"),
    [
        ({}, True),
        ({"MESH_DEVICE": "T3K"}, True),
        ({"MESH_DEVICE": "(2,3)"}, False),
        # what is visible is known when it is opened
        ({"TT_VISIBLE_DEVICES": "0,1,2"}, False),
        ({"TT_EMULATE": ""}, False),
        ({"TT_EMULATE": "2xT3K"}, True),
    ],
)
def test_lanes_are_checked_against_a_mesh_that_is_known(make_config, monkeypatch, environ, refused):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if refused:
        with pytest.raises(ValueError, match="3 lanes do not divide"):
            folded(make_config, 3)
    else:
        assert lane_shape(folded(make_config, 3)).lanes == 3


def test_a_mesh_of_one_chip_has_one_lane():
    check_split(1, MeshGrid(1, 1))
    with pytest.raises(ValueError, match="Use 1 lanes"):
        check_split(2, MeshGrid(1, 1))
