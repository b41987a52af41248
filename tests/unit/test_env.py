from __future__ import annotations

import pathlib

import pytest

from vllm_tt import env
from vllm_tt.mesh import MeshGrid

HOME = pathlib.Path.home()
MESHES = "N150, P100, P150, N300, P300, P150x2, N150x4, P150x4, P300x2, T3K, P150x8, TG, BH-Galaxy"

READS = [
    (env.EMULATE, None, None),
    (env.EMULATE, "  ", None),
    (env.EMULATE, "N300", "N300"),
    (env.EMULATE, "2xT3K", "2xT3K"),
    (env.MESH_DEVICE, None, None),
    (env.MESH_DEVICE, "", None),
    (env.MESH_DEVICE, "T3K", MeshGrid(1, 8)),
    (env.MESH_DEVICE, "(2, 4)", MeshGrid(2, 4)),
    (env.EXTRA_MODELS_DIR, "../../tt-metal/models/demos", "../../tt-metal/models/demos"),
    (env.EXTRA_MODELS_DIR, None, None),
    (env.BUILTIN_MODELS, None, True),
    (env.BUILTIN_MODELS, "0", False),
    (env.BUILTIN_MODELS, "False", False),
    (env.BUILTIN_MODELS, "no", False),
    (env.BUILTIN_MODELS, "OFF", False),
    (env.BUILTIN_MODELS, "1", True),
    (env.IGNORE_REQUIRES, None, False),
    (env.IGNORE_REQUIRES, "yes", True),
    (env.CLASS_OVERRIDES, None, {}),
    (
        env.CLASS_OVERRIDES,
        "TTLlamaForCausalLM=my.models:Llama, TTQwen2ForCausalLM = q:Qwen,",
        {"TTLlamaForCausalLM": "my.models:Llama", "TTQwen2ForCausalLM": "q:Qwen"},
    ),
    (env.LLAMA_TEXT_VER, "llama2_70b", "llama2_70b"),
    (env.QWEN3_TEXT_VER, None, None),
    (env.QWEN35_TEXT_VER, None, None),
    (env.VISIBLE_DEVICES, "4,5", "4,5"),
    (env.METAL_HOME, "/opt/tt-metal", pathlib.Path("/opt/tt-metal")),
    (env.METAL_HOME, None, None),
    (env.CACHE_DIR, None, HOME / ".cache" / "vllm-tt"),
    (env.CACHE_DIR, "/scratch/tt", pathlib.Path("/scratch/tt")),
    (env.CACHE_DIR, "~/tt", HOME / "tt"),
]

REFUSALS = [
    (
        env.EMULATE,
        "n300",
        f"TT_EMULATE='n300' is not valid: expected one of {MESHES}, 2xT3K. Unset it for the default (real devices).",
    ),
    (
        env.MESH_DEVICE,
        "N151",
        (
            f"MESH_DEVICE='N151' is not valid: expected one of {MESHES}, or a grid such as \"(2,4)\". "
            "Unset it for the default (one row of all devices)."
        ),
    ),
    (
        env.MESH_DEVICE,
        "(0,4)",
        (
            f"MESH_DEVICE='(0,4)' is not valid: expected one of {MESHES}, or a grid such as \"(2,4)\". "
            "Unset it for the default (one row of all devices)."
        ),
    ),
    (
        env.BUILTIN_MODELS,
        "flase",
        (
            "TT_VLLM_BUILTIN_MODELS='flase' is not valid: expected one of 1, true, yes, on or 0, false, no, off. "
            "Unset it for the default (1)."
        ),
    ),
    (
        env.CLASS_OVERRIDES,
        "TTLlamaForCausalLM=my.models.Llama",
        (
            "TT_MODEL_CLASS_OVERRIDES='TTLlamaForCausalLM=my.models.Llama' is not valid: expected "
            '"Architecture=module:Class", comma separated. Unset it for the default (no override).'
        ),
    ),
]


@pytest.mark.parametrize(("variable", "text", "value"), READS)
def test_reads(variable, text, value):
    environ = {} if text is None else {variable.name: text}
    assert variable.get(environ) == value


@pytest.mark.parametrize(("variable", "text", "message"), REFUSALS)
def test_refuses(variable, text, message):
    with pytest.raises(env.EnvError) as caught:
        variable.get({variable.name: text})
    assert str(caught.value) == message


def test_the_cache_follows_xdg():
    assert env.CACHE_DIR.get({"XDG_CACHE_HOME": "/data/cache"}) == pathlib.Path("/data/cache/vllm-tt")


def test_reads_the_process_environment_by_default(monkeypatch):
    monkeypatch.setenv("MESH_DEVICE", "N300")
    assert env.MESH_DEVICE.get() == MeshGrid(1, 2)


def test_defaults_are_not_shared():
    env.CLASS_OVERRIDES.get({})["TTX"] = "m:C"
    assert env.CLASS_OVERRIDES.get({}) == {}


def test_the_table_lists_every_variable_once():
    declared = {value.name for value in vars(env).values() if isinstance(value, env.Variable)}
    names = [variable.name for variable in env.VARIABLES]
    assert sorted(names) == sorted(declared)
    assert all(variable.help.endswith(".") for variable in env.VARIABLES)


def test_a_process_without_a_home_is_told_to_name_a_cache(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(pathlib.Path, "home", no_home)
    with pytest.raises(env.NoHome) as error:
        env.CACHE_DIR.get({})
    assert str(error.value) == ("There is no home folder to keep the cache in. Set TT_VLLM_CACHE to a folder, or HOME.")
    assert env.CACHE_DIR.get({"TT_VLLM_CACHE": "/scratch/tt"}) == pathlib.Path("/scratch/tt")
