"""What the reference bundles' metadata say of their classes."""

import json
from pathlib import Path

import pytest

BUNDLES = {
    "gemma3-host": ("Gemma3ForCausalLM", "Gemma3ForCausalLM"),
    "llama-host": ("LlamaForCausalLM", "LlamaForCausalLM"),
    "qwen2_5_vl-host": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
    "qwen3-moe-host": ("Qwen3MoeForCausalLM", "Qwen3MoeForCausalLM"),
    "qwen3_5-host": ("Qwen35ForCausalLM", "Qwen3_5ForCausalLM"),
}
"""Class and architecture of each."""


@pytest.mark.parametrize("bundle", BUNDLES)
def test_the_metadata_names_the_class(bundle, bundle_module):
    module, (name, architecture) = bundle_module(bundle), BUNDLES[bundle]
    metadata = json.loads(Path(module.__file__).with_name("vllm_metadata.json").read_text())
    assert getattr(module, name).__name__ == name
    assert metadata["main_class"] == f"generator_vllm:{name}"
    assert metadata["arch"] == architecture


def test_every_bundle_is_one_of_these():
    folders = {path.parent.name for path in Path(__file__).parents[3].glob("bundles/*/vllm_metadata.json")}
    assert folders == set(BUNDLES)
