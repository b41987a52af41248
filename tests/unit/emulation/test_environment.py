import importlib.util
import logging
import os
import sys
import types
from importlib.machinery import ModuleSpec
from unittest import mock

import pytest

from vllm_tt import emulation
from vllm_tt.emulation.runtime_root import TtnnNotInstalled
from vllm_tt.env import EnvError

LOGGER = "vllm.tt.emulation.environment"


@pytest.fixture(autouse=True)
def environ(tmp_path, monkeypatch):
    """An environment without anything of the runtime's, put back afterwards; ttnn is not loaded yet."""
    names = [name for name in os.environ if name.startswith(("TT_", "OMPI_", "LOGURU_"))]
    with mock.patch.dict(os.environ, {"TT_VLLM_CACHE": str(tmp_path / "cache")}):
        for name in names:
            if name != "TT_VLLM_CACHE":
                del os.environ[name]
        monkeypatch.delitem(sys.modules, "ttnn", raising=False)
        yield os.environ


@pytest.fixture
def folder(tmp_path):
    """The folder of the emulated machines, once it exists."""

    def find():
        (only,) = (tmp_path / "cache" / "emulation").iterdir()
        return only

    return find


def test_without_a_machine_nothing_happens(environ, tmp_path):
    before = dict(environ)
    emulation.prepare()
    assert environ == before
    assert not (tmp_path / "cache").exists()


def test_a_machine_sets_what_the_runtime_needs(environ, folder, caplog):
    before = environ | {"TT_EMULATE": "T3K"}
    environ["TT_EMULATE"] = "T3K"
    with caplog.at_level(logging.INFO, LOGGER):
        emulation.prepare()
    assert {name: value for name, value in environ.items() if before.get(name) != value} == {
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": f"{folder()}/descriptors/T3K.tt-emulate.yaml",
        "TT_METAL_RUNTIME_ROOT": f"{folder()}/root",
        "TT_METAL_CACHE": f"{folder()}/kernels/",
        "TT_METAL_LOGS_PATH": f"{folder()}/logs/T3K",
        "TT_METAL_SHM_TRACKING_DISABLED": "1",
        "OMPI_MCA_btl": "self",
        "TT_MESH_PASS_THROUGH_THREAD_POOL": "1",
        "TT_LOGGER_LEVEL": "off",
        "LOGURU_LEVEL": "WARNING",
        "TT_METAL_DISABLE_BACKTRACE": "1",
    }
    assert caplog.messages == [f"Emulating T3K: the runtime runs on this host, kernels do not compute ({folder()})"]


def test_a_second_call_changes_and_says_nothing(environ, caplog):
    environ["TT_EMULATE"] = "N300"
    emulation.prepare()
    after_first = dict(environ)
    with caplog.at_level(logging.INFO, LOGGER):
        emulation.prepare()
    assert environ == after_first
    assert caplog.messages == []


def test_another_machine_replaces_the_first(environ, folder):
    for machine in ("N300", "TG"):
        environ["TT_EMULATE"] = machine
        emulation.prepare()
    assert environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"] == f"{folder()}/descriptors/TG.tt-emulate.yaml"
    assert environ["TT_METAL_LOGS_PATH"] == f"{folder()}/logs/TG"


def test_settings_for_real_devices_do_not_get_in_the_way(environ, folder):
    environ |= {"TT_EMULATE": "N300", "TT_METAL_RUNTIME_ROOT": "/opt/tt-metal", "TT_METAL_CACHE": "/var/kernels"}
    emulation.prepare()
    assert environ["TT_METAL_RUNTIME_ROOT"] == f"{folder()}/root"
    assert environ["TT_METAL_CACHE"] == f"{folder()}/kernels/"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"TT_LOGGER_LEVEL": "debug"}, {"TT_LOGGER_LEVEL": "debug"}),
        ({"TT_LOGGER_FILE": "/log"}, {"TT_LOGGER_FILE": "/log", "TT_LOGGER_LEVEL": None}),
        ({"TT_METAL_LOGGER_LEVEL": "info"}, {"TT_METAL_LOGGER_LEVEL": "info", "TT_LOGGER_LEVEL": None}),
        ({"LOGURU_LEVEL": "DEBUG"}, {"LOGURU_LEVEL": "DEBUG", "TT_LOGGER_LEVEL": "off"}),
        ({"TT_METAL_DISABLE_BACKTRACE": "0"}, {"TT_METAL_DISABLE_BACKTRACE": "0"}),
        ({"TT_MESH_PASS_THROUGH_THREAD_POOL": "0"}, {"TT_MESH_PASS_THROUGH_THREAD_POOL": "0"}),
        ({"TMPDIR": "/elsewhere"}, {"TMPDIR": "/elsewhere"}),
    ],
)
def test_what_the_user_says_about_logs_and_threads_stands(environ, given, kept):
    environ |= {"TT_EMULATE": "N300"} | given
    emulation.prepare()
    assert {name: environ.get(name) for name in kept} == kept


def test_a_cluster_descriptor_of_the_users_stays(environ, folder, caplog):
    environ |= {"TT_EMULATE": "N300", "TT_METAL_MOCK_CLUSTER_DESC_PATH": "/mine/cluster.yaml"}
    with caplog.at_level(logging.INFO, LOGGER):
        emulation.prepare()
        emulation.prepare()
    assert environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"] == "/mine/cluster.yaml"
    assert environ["TT_METAL_RUNTIME_ROOT"] == f"{folder()}/root"
    assert caplog.messages == [
        "TT_EMULATE=N300: the cluster descriptor in TT_METAL_MOCK_CLUSTER_DESC_PATH=/mine/cluster.yaml is used as it is"
    ]


def test_being_late_is_said(environ, monkeypatch, caplog):
    late = types.ModuleType("ttnn")
    late.__spec__ = ModuleSpec("ttnn", None, origin=importlib.util.find_spec("ttnn").origin)
    monkeypatch.setitem(sys.modules, "ttnn", late)
    environ["TT_EMULATE"] = "N300"
    with caplog.at_level(logging.WARNING, LOGGER):
        emulation.prepare()
    assert caplog.messages == [
        "TT_EMULATE=N300 comes late: ttnn is loaded already and may have looked for real devices"
    ]


def test_an_unknown_machine(environ, tmp_path):
    environ["TT_EMULATE"] = "N301"
    with pytest.raises(EnvError) as error:
        emulation.prepare()
    assert str(error.value) == (
        "TT_EMULATE='N301' is not valid: expected one of N150, P100, P150, N300, P300, P150x2, N150x4, P150x4, P300x2, "
        "T3K, P150x8, TG, BH-Galaxy, 2xT3K. Unset it for the default (real devices)."
    )
    assert not (tmp_path / "cache").exists()


def test_without_ttnn(environ, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    environ["TT_EMULATE"] = "N300"
    with pytest.raises(TtnnNotInstalled) as error:
        emulation.prepare()
    assert str(error.value) == (
        f"TT_EMULATE=N300 needs the Python package ttnn, which is not installed in {sys.prefix}. "
        "Install it (pip install ttnn), or unset TT_EMULATE."
    )


def test_importing_and_preparing_is_light(sandbox):
    code = (
        "import sys; from vllm_tt import emulation; emulation.prepare(); "
        "print({'ttnn', 'torch', 'vllm', 'numpy'} & set(sys.modules))"
    )
    assert sandbox.run("-c", code, TT_EMULATE="N300") == (0, "set()\n", "")
