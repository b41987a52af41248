"""How the engine's process starts. What depends on a whole process is tried in one, without vLLM."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from vllm_tt.platform import engine_start
from vllm_tt.platform.engine_start import Start, choose
from vllm_tt.platform.policies import Change

TTNN = "ttnn is loaded in this process"
ANEW = Change(f"The engine's process imports vLLM again, which a fork of this one would save, because {TTNN}")
ANYWAY = Change(
    f"The engine is forked, as asked for, although {TTNN}: it may hang. TT_ENGINE_START=spawn is safe", logging.WARNING
)

CHOICES = [
    ("auto", None, Start(method="fork")),
    ("auto", TTNN, Start(method="spawn", change=ANEW)),
    ("fork", None, Start(method="fork")),
    ("fork", TTNN, Start(method="fork", change=ANYWAY)),
    ("spawn", None, Start(method="spawn")),
    ("spawn", TTNN, Start(method="spawn")),
]


@pytest.mark.parametrize(("wanted", "obstacle", "start"), CHOICES)
def test_a_fork_is_chosen_where_nothing_speaks_against_it(wanted, obstacle, start):
    assert choose(wanted, obstacle) == start


def multimodal(config):
    from vllm.config import MultiModalConfig

    config.model_config.multimodal_config = MultiModalConfig()


def traced(config):
    config.observability_config.otlp_traces_endpoint = "http://localhost:4317"


def bound(config):
    config.parallel_config.numa_bind = True


SETTINGS = {
    multimodal: "the processor of a multimodal model may compute in this process before the engine starts",
    traced: "this process exports traces (--otlp-traces-endpoint)",
    bound: "a fork cannot be bound to a NUMA node (--numa-bind)",
}


@pytest.fixture
def obstacles(monkeypatch):
    """What speaks against a fork of a process that has loaded nothing and runs no thread of its own."""
    monkeypatch.delitem(sys.modules, "ttnn", raising=False)
    monkeypatch.setattr(engine_start.threading, "enumerate", lambda: [engine_start.threading.current_thread()])
    monkeypatch.setattr(engine_start, "fork_computes", lambda: True)
    return lambda config: list(engine_start.obstacles(config))


def test_plain_settings_allow_a_fork(obstacles, make_config):
    assert obstacles(make_config()) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.__name__)
def test_settings_that_rule_out_a_fork(obstacles, make_config, setting):
    config = make_config()
    setting(config)
    assert obstacles(config) == [SETTINGS[setting]]


def test_a_loaded_runtime_rules_out_a_fork(obstacles, make_config, monkeypatch):
    monkeypatch.setitem(sys.modules, "ttnn", sys)
    assert obstacles(make_config()) == [TTNN]


def test_threads_rule_out_a_fork(obstacles, make_config, monkeypatch):
    threading = engine_start.threading
    mine, theirs = threading.current_thread(), threading.Thread(name="heartbeat")
    monkeypatch.setattr(threading, "enumerate", lambda: [mine, theirs])
    assert obstacles(make_config()) == ["this process runs other threads (heartbeat)"]


def test_a_fork_that_would_hang_rules_itself_out(obstacles, make_config, monkeypatch):
    monkeypatch.setattr(engine_start, "fork_computes", lambda: False)
    assert obstacles(make_config()) == ["torch has computed on several threads in this process"]


TRIALS = """
import threading
import torch
from vllm_tt.platform import engine_start
engine_start.TRIAL_SECONDS = 1.5
compute = engine_start._compute
torch.set_num_threads(2)
print(engine_start.fork_computes())
other = threading.Thread(target=compute)
other.start()
other.join()
print(engine_start.fork_computes())
compute()
print(engine_start.fork_computes())
"""


def test_a_trial_tells_whether_this_thread_has_computed_on_several():
    assert run(TRIALS) == ["True", "True", "False"]


CHOSEN = """
import os, sys
from vllm_tt.platform import compat
for name in {set_before}: os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = name
if {command_line}: sys.modules["vllm.entrypoints.cli.main"] = sys
compat.default_to_spawn()
print(compat.chosen_start_method(), os.environ["VLLM_WORKER_MULTIPROC_METHOD"])
compat.set_start_method("fork")
print(compat.chosen_start_method(), os.environ["VLLM_WORKER_MULTIPROC_METHOD"])
"""

METHODS = {
    "nobody": (None, None, False, None),
    "the user": ("spawn", None, False, "spawn"),
    "the user, a fork": ("fork", None, False, "fork"),
    "a script": (None, "spawn", False, "spawn"),
    "the command line": (None, "spawn", True, None),
    "the user of the command line": ("spawn", None, True, "spawn"),
    "the user of the command line, a fork": ("fork", None, True, "fork"),
}


@pytest.mark.parametrize("who", METHODS)
def test_what_the_command_line_sets_is_nobodys_choice(who):
    born_with, set_before, command_line, chosen = METHODS[who]
    program = CHOSEN.format(set_before=[set_before] if set_before else [], command_line=command_line)
    environ = {} if born_with is None else {"VLLM_WORKER_MULTIPROC_METHOD": born_with}
    assert run(program, environ) == [f"{chosen} {chosen or 'spawn'}", f"{chosen} fork"]


def run(program, environ=None):
    """The lines that a process of its own prints."""
    import os

    inherited = {name: value for name, value in os.environ.items() if name != "VLLM_WORKER_MULTIPROC_METHOD"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | (environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split("\n")[:-1]
