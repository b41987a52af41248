"""An engine in a process of its own, once: everything that a benchmark asks of it."""

import pytest
from tools.bench.checkpoint import write_checkpoint
from tools.bench.rig import HERE, Checkout, RigFailed, rigs
from tools.bench.settings import Arriving, Settings, Steady
from tools.bench.workloads import WORKLOADS

SMALL = {"rows": 3, "steps": 6}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(model=str(write_checkpoint(tmp_path_factory.mktemp("no-op") / "model", 256)), rows=4)


@pytest.fixture(scope="module")
def rig(settings):
    with rigs([(HERE, settings)]) as ready:
        yield ready[HERE, settings]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_decodes(rig, workload):
    timing = rig.steady(Steady(**SMALL, workload=workload))
    assert timing.steps == len(timing.core) == 6
    assert timing.device == 0
    assert all(0 < core < loop for core, loop in zip(timing.core, timing.loop, strict=True))


def test_the_floor_leaves_the_worker_as_it_was(rig):
    floor = rig.steady(Steady(**SMALL, floor=True))
    assert set(floor.counters) == {"step_seconds", "tokens"}
    assert sum(rig.steady(Steady(**SMALL)).counters["steps"].values()) == 6


def test_device_time_is_in_the_steps(rig):
    timing = rig.steady(Steady(rows=4, steps=20, device_ms=5))
    assert 19 * 5e6 <= timing.device <= 21 * 5e6
    assert sum(timing.loop) >= 18 * 5e6


def test_requests_come_and_go(rig):
    timing = rig.churn(Arriving(rate=200, seconds=0.5, warm=0.1, device_ms=1))
    assert timing.device > 0
    assert sum(timing.loop) >= 4e8


def test_reading_and_profile(rig):
    assert rig.reading(5).steps == 5
    found = rig.profile(Steady(rows=4, steps=100))
    assert found["samples"] >= sum(found["ours"].values())
    assert all(line.startswith("vllm_tt/") for line in found["ours"])


def test_a_fault_of_the_engine_is_told(settings, tmp_path):
    source = tmp_path / "src"
    (source / "vllm_tt").mkdir(parents=True)
    (source / "vllm.py").write_text("raise ImportError('not today')\n")
    broken = Checkout.other(tmp_path)
    with pytest.raises(RigFailed) as caught, rigs([(broken, settings)]):
        pass
    first, *_, last = str(caught.value).splitlines()
    assert first == f"The engine of {tmp_path.name} (4 rows, asynchronous, sampled on the device) failed:"
    assert last == "ImportError: not today"
