"""Registration with the real vLLM, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from bundle_cases import INVALID, expected

SCRIPT = Path(__file__).parents[2] / "support" / "registering.py"
INVALID_ROOT = Path(__file__).parents[2] / "bundles" / "invalid"


@pytest.fixture(scope="module")
def good():
    """A folder with one good bundle, for an architecture that vLLM does not know."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "good" / "novel"
        folder.mkdir(parents=True)
        (folder / "vllm_metadata.json").write_text('{"arch": "NovelForCausalLM", "main_class": "json:Novel"}')
        (folder / "json.py").write_text("class Novel: model_capabilities = {'supports_async_decode': True}")
        (Path(name) / "empty").mkdir()
        yield Path(name)


CASES = {
    "poison": ("registered", "{good}/good:{invalid}", {}),
    "spawned": ("names_in_a_spawned_child", "{good}/good", {"TT_VLLM_BUILTIN_MODELS": "0"}),
    "elsewhere": ("on_another_platform", "{good}/good", {}),
    "answers": ("answers", "{good}/good:{invalid}", {}),
    "capabilities": ("capabilities_of_the_good_bundle", "{good}/good", {}),
    "upstream": ("left_to_vllm", "{good}/good", {}),
    "same": ("same_answers_as_vllm", "", {}),
    "unknown": ("unknown_architecture", "{good}/good", {}),
    "nothing": ("selected_with_nothing_registered", "{good}/empty", {"TT_VLLM_BUILTIN_MODELS": "0"}),
}


@pytest.fixture(scope="module")
def outcomes(good):
    cases = []
    for function, folders, environ in CASES.values():
        value = folders.format(good=good, invalid=INVALID_ROOT)
        cases.append((function, {"EXTRA_MODELS_DIR": value, **environ}))
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(cases),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "VLLM_CACHE_ROOT": str(good / "cache"), "TRANSFORMERS_VERBOSITY": "error"},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


def test_poisonous_bundles_beside_a_good_one(outcomes):
    seen = outcomes["poison"]
    assert "TTNovelForCausalLM" in seen["names"]
    log = seen["log"]
    assert "INFO Registered TT model TTNovelForCausalLM -> json:Novel (from EXTRA_MODELS_DIR/novel)" in log
    skipping = [line for line in log if line.startswith("WARNING Skipping bundle ")]
    assert len(skipping) == len([case for case in INVALID if any(" skip " in line for line in expected(case))])
    assert len(log) == len(set(log))
    assert sum(line.startswith("INFO TT models: ") for line in log) == 1


def test_a_spawned_process_registers_again(outcomes):
    assert outcomes["spawned"] == ["TTNovelForCausalLM"]


def test_another_platform_is_left_alone(outcomes):
    assert outcomes["elsewhere"] is True


def test_vllm_answers_without_inspecting_in_a_subprocess(outcomes):
    plain = ["generate", False, False]
    assert outcomes["answers"] == {
        "LlamaForCausalLM": ["LlamaForCausalLM", *plain, "TTLlamaForCausalLM"],
        "TTLlamaForCausalLM": ["TTLlamaForCausalLM", *plain, "TTLlamaForCausalLM"],
        "NovelForCausalLM": ["NovelForCausalLM", *plain, "TTNovelForCausalLM"],
        "Qwen3ForCausalLM": ["Qwen3ForCausalLM", *plain, "TTQwen3ForCausalLM"],
    }


def test_a_bundles_class_and_capabilities(outcomes):
    assert outcomes["capabilities"] == [True, "Novel"]


def test_models_that_are_more_than_decoders_are_left_to_vllm(outcomes):
    assert outcomes["upstream"] == [
        "JambaForCausalLM",
        "MambaForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
    ]


def test_facades_answer_as_vllms_own_classes_do(outcomes):
    assert outcomes["same"] == {
        name: ["architecture"] for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM")
    }


def test_an_architecture_that_nobody_knows(outcomes, good):
    assert "No Tenstorrent model serves UnheardOfForCausalLM. " in outcomes["unknown"]
    assert f"Scanned {good}/good: 1 bundle, 0 skipped." in outcomes["unknown"]
    assert "Supported architectures" not in outcomes["unknown"]


def test_nothing_registered_is_refused_with_the_reason(outcomes, good):
    assert outcomes["nothing"] == (
        "UnknownArchitecture: No Tenstorrent model serves LlamaForCausalLM. No model is registered at all.\n"
        f"Scanned {good}/empty: 0 bundles, 0 skipped.\n"
        "TT_VLLM_BUILTIN_MODELS=0 leaves out the models built into tt-metal, TTLlamaForCausalLM among them, and no "
        "bundle is registered: set EXTRA_MODELS_DIR to a folder of bundle folders, or unset it."
    )
