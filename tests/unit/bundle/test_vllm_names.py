import subprocess
import sys

import pytest

from vllm_tt.bundle.vllm_names import vllm_architectures, vllm_parsers


def test_names_from_the_text_of_vllms_tables():
    names = vllm_architectures()
    assert {"LlamaForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Gemma3ForCausalLM"} <= names
    assert "NovelForCausalLM" not in names


def test_where_vllm_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    vllm_architectures.cache_clear()
    assert vllm_architectures() == frozenset()
    vllm_architectures.cache_clear()


@pytest.mark.parametrize(("kind", "module"), [("tool", "vllm.tool_parsers"), ("reasoning", "vllm.reasoning")])
def test_parsers_are_those_that_vllm_registers(kind, module):
    script = (
        f"import {module} as found; managers = [one for name, one in vars(found).items() if name.endswith('Manager')]; "
        "print('NAMES', *managers[0].list_registered())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert set(done.stdout.rpartition("NAMES ")[2].split()) == vllm_parsers(kind)


def test_no_parsers_where_vllm_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    vllm_parsers.cache_clear()
    assert vllm_parsers("tool") == vllm_parsers("reasoning") == frozenset()
    vllm_parsers.cache_clear()
