from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from vllm_tt.entrypoints import PLATFORM, platform_plugin, register
from vllm_tt.platform.metrics import TTStatLogger

ABSENT = "INFO ttnn is not installed: the Tenstorrent platform stays off (pip install ttnn to use it)"
CANNOT_LOCATE = (
    "ERROR ttnn is installed but cannot be located, so the Tenstorrent platform stays off. "
    "Reinstall it (pip install --force-reinstall ttnn) or repair the tt-metal build on PYTHONPATH"
)
HIDDEN = (
    "ERROR the folder /src/ttnn hides the ttnn library: it has no __init__.py. Start vLLM from another folder or "
    "put the folder that holds the library first on PYTHONPATH; the Tenstorrent platform stays off"
)


class Finder:
    """Answers for ttnn before every other finder."""

    def __init__(self, answer):
        self.answer = answer

    def find_spec(self, name, path=None, target=None):
        return self.answer() if name == "ttnn" else None


@pytest.fixture(scope="module", autouse=True)
def platform():
    """vLLM settles on its platform as it is imported: before a test hides ttnn from it."""
    from vllm.platforms import current_platform

    assert type(current_platform).__name__ == "TTPlatform"


@pytest.fixture
def lines(caplog):
    """The log lines of the entry points."""
    caplog.set_level("INFO", logger="vllm.tt.entrypoints")
    return lambda: [
        f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == "vllm.tt.entrypoints"
    ]


@pytest.fixture
def find(monkeypatch):
    """Let the search for ttnn end in ``answer()``."""

    def use(answer):
        monkeypatch.delitem(sys.modules, "ttnn", raising=False)
        monkeypatch.setattr(sys, "meta_path", [Finder(answer), *sys.meta_path])

    return use


def test_the_platform_when_ttnn_is_installed(lines):
    assert platform_plugin() == platform_plugin() == PLATFORM
    assert lines() == []


def test_no_platform_without_ttnn(lines, monkeypatch):
    monkeypatch.setitem(sys.modules, "ttnn", None)  # as Python marks a module that cannot be imported
    assert platform_plugin() is None
    assert lines() == [ABSENT]


@pytest.mark.parametrize("fault", [OSError("cannot read /src"), ImportError("partly built"), AttributeError("x")])
def test_a_search_that_fails_is_an_error_with_its_cause(lines, find, caplog, fault):
    def fail():
        raise fault

    find(fail)
    assert platform_plugin() is None
    assert lines() == [CANNOT_LOCATE]
    assert caplog.records[0].exc_info[1] is fault


def test_a_folder_that_is_no_library_is_an_error(lines, find):
    spec = ModuleSpec("ttnn", None, is_package=True)
    spec.submodule_search_locations = ["/src/ttnn"]
    find(lambda: spec)
    assert platform_plugin() is None
    assert lines() == [HIDDEN]


def test_the_search_does_not_import_ttnn(find):
    spec = ModuleSpec("ttnn", None, origin="/src/ttnn/__init__.py", is_package=True)
    find(lambda: spec)
    assert platform_plugin() == PLATFORM
    assert "ttnn" not in sys.modules


def test_emulation_that_cannot_be_prepared_is_an_error_and_left_to_the_start(lines, monkeypatch):
    monkeypatch.setenv("TT_EMULATE", "N3000")
    assert platform_plugin() == PLATFORM
    (line,) = lines()
    assert line.startswith(
        "ERROR the emulated mesh cannot be prepared: TT_EMULATE='N3000' is not valid: expected one of"
    )


def test_an_empty_list_of_cuda_devices_is_taken_away(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    platform_plugin()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("given", [None, "0", "1"])
def test_register_pins_the_runner_that_nobody_chose(monkeypatch, given):
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    if given is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", given)
    register()
    register()
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == (given or "0")


def test_the_installed_entry_points_are_these():
    points = {
        (point.group, point.name): point.load()
        for group in ("vllm.platform_plugins", "vllm.general_plugins", "vllm.stat_logger_plugins")
        for point in importlib.metadata.entry_points(group=group)
        if point.value.startswith("vllm_tt.")
    }
    assert points == {
        ("vllm.platform_plugins", "tt"): platform_plugin,
        ("vllm.general_plugins", "tt"): register,
        ("vllm.general_plugins", "tt_model_registry"): register,
        ("vllm.stat_logger_plugins", "tt"): TTStatLogger,
    }


PROCESS = """
import sys
if {absent}: sys.modules["ttnn"] = None
import vllm
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.platforms import current_platform
registry = sys.modules.get("vllm.model_executor.models.registry")
names = registry.ModelRegistry.get_supported_archs() if registry else ()
print("PLATFORM", type(current_platform).__name__, "TTLlamaForCausalLM" in names)
"""


@pytest.mark.parametrize(
    ("plugins", "absent", "platform", "said"),
    [
        (
            "tt_model_registry",
            False,
            "UnspecifiedPlatform False",
            (
                "VLLM_PLUGINS=tt_model_registry leaves out 'tt': the Tenstorrent platform and its models stay off. "
                "Add 'tt' to the list; it covers the model registry too"
            ),
        ),
        ("tt", False, "TTPlatform True", None),
        (None, True, "UnspecifiedPlatform False", ABSENT.removeprefix("INFO ")),
    ],
    ids=["registry alone", "tt alone", "without ttnn"],
)
def test_in_a_process_of_vllm(plugins, absent, platform, said):
    """The lines are visible although vLLM loads the plugins while it is half imported."""
    environ = {name: text for name, text in os.environ.items() if name != "VLLM_PLUGINS"}
    environ |= {"VLLM_LOGGING_LEVEL": "INFO"} | ({} if plugins is None else {"VLLM_PLUGINS": plugins})
    done = subprocess.run(
        [sys.executable, "-c", PROCESS.format(absent=absent)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"PLATFORM {platform}\n" in done.stdout
    ours = [line.partition("] ")[2] for line in done.stdout.splitlines() if "[entrypoints.py" in line]
    assert ours == ([] if said is None else [said])
