"""The no-op model's modules, timings as data, and engines that answer without being there."""

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.bench.settings import Timing

NO_OP = Path(__file__).parents[4] / "tools" / "bench" / "bundles" / "no-op"
MS = 1_000_000


def load(name, file):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, NO_OP / file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def no_op_device():
    return load("no_op_device", "no_op_device.py")


@pytest.fixture(scope="session")
def no_op(no_op_device):
    """The adapter's module, under a name of its own: other bundles have a generator_vllm too."""
    return load("no_op_generator", "generator_vllm.py")


@pytest.fixture
def timing():
    """A function that makes a timing of steps that all took ``ms``."""

    def make(ms, *, core=None, cpu=None, device=0.0, steps=40, counters=None):
        return Timing(
            loop=[round(ms * MS)] * steps,
            core=[round((core or ms) * MS)] * steps,
            cpu=round((cpu or ms) * MS) * steps,
            device=round(device * MS) * steps,
            counters=counters or {},
        )

    return make


@pytest.fixture
def fake_rigs(monkeypatch, timing):
    """Engines that answer at once; what they are asked is kept, in order."""
    asked = []

    class FakeRig:
        def __init__(self, checkout, settings):
            self.slower = 2 if checkout.name != "here" else 1
            self.settings = settings

        def steady(self, wanted):
            asked.append(wanted)
            host = 0 if wanted.floor else wanted.rows / 32 * self.slower
            host += 0.15 if self.settings.books == "log" else 0.0
            counters = {"drains": {"prefill": 10}, "host_sampling": {} if self.settings.on_device else {"mode": 40}}
            return timing(0.5 + host + wanted.device_ms, core=0.25 + host, device=wanted.device_ms, counters=counters)

        def churn(self, wanted):
            asked.append(wanted)
            return timing(
                12.5 * self.slower, device=10.0, counters={"steps": {"decode device": 30, "prefill device": 10}}
            )

        def reading(self, times):
            return timing(0.1, steps=times)

        def profile(self, wanted):
            ours = {"vllm_tt/a.py f:1": 30, "vllm_tt/a.py f:2": 10, "vllm_tt/b.py g:9": 20}
            found = timing(2.0)
            fields = {name: getattr(found, name) for name in ("loop", "core", "cpu", "device", "counters")}
            return {"timing": fields, "samples": 100, "top": {"vllm_tt/a.py f": 25}, "ours": ours}

    @contextmanager
    def rigs(engines):
        yield {engine: FakeRig(*engine) for engine in engines}

    for module in ("plan", "profiling"):
        monkeypatch.setattr(f"tools.bench.{module}.rigs", rigs)
    return asked
