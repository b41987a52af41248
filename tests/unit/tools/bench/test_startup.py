import pytest
from tools.bench.server import Start
from tools.bench.startup import phases

LOG = [
    (15.0, "(APIServer pid=1) INFO [api_utils.py:273] non-default args: {'model': 'x'}"),
    (15.5, "(APIServer pid=1) INFO [settle.py:40] Serving TTNoOpForCausalLM on all devices of an emulated N150"),
    (30.0, "(EngineCore pid=2) INFO [core.py:116] Initializing a V1 LLM engine (v0.26.0) with config: ..."),
    (31.0, "(EngineCore pid=2) INFO [device.py:99] multidevice with 1 devices and grid (1, 1) is created"),
    (31.2, "(EngineCore pid=2) INFO [core.py:347] init engine (profile, create kv cache, warmup model) took 0.01 s"),
    (32.0, "(APIServer pid=1) INFO [api_server.py:673] Supported tasks: ['generate']"),
]


def test_phases_follow_one_another():
    found = phases(Start(healthy=32.5, lines=LOG))
    assert found == pytest.approx(
        {
            "API server imported": 15.0,
            "configured": 0.5,
            "engine imported": 14.5,
            "mesh open": 1.0,
            "model ready": 0.2,
            "engine ready": 0.8,
            "serving": 0.5,
        }
    )


def test_a_phase_that_the_log_does_not_show_is_part_of_the_next():
    found = phases(Start(healthy=32.5, lines=[LOG[0], LOG[3]]))
    assert found == pytest.approx({"API server imported": 15.0, "mesh open": 16.0, "serving": 1.5})
