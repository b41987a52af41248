import sys

from vllm_tt.bundle.vllm_names import vllm_architectures


def test_names_from_the_text_of_vllms_tables():
    names = vllm_architectures()
    assert {"LlamaForCausalLM", "Qwen2_5_VLForConditionalGeneration", "Gemma3ForCausalLM"} <= names
    assert "NovelForCausalLM" not in names


def test_where_vllm_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    vllm_architectures.cache_clear()
    assert vllm_architectures() == frozenset()
    vllm_architectures.cache_clear()
