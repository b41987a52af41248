import pytest

from vllm_tt.models.resolve import builtin_entries, resolve, summary


def classes(registry, source):
    return {entry.arch: entry.main_class for entry in registry.entries.values() if entry.source == source}


@pytest.fixture
def environ(tmp_path):
    return {"EXTRA_MODELS_DIR": str(tmp_path / "bundles")}


def test_built_ins_alone():
    found = resolve({})
    assert {entry.source for entry in found.entries.values()} == {"builtin"}
    assert len([entry for entry in found.entries.values() if not entry.test_model]) == 15
    assert summary(found) == (
        "TT models: 0 architectures from 0 folders, 0 skipped (EXTRA_MODELS_DIR is not set); 15 built in"
    )


def test_built_ins_switched_off(environ, bundle, tmp_path):
    bundle("mine", arch="NovelForCausalLM")
    found = resolve({**environ, "TT_VLLM_BUILTIN_MODELS": "0"})
    assert list(found.entries) == ["TTNovelForCausalLM"]
    assert summary(found) == (
        f"TT models: 1 architecture from 1 folder, 0 skipped ({tmp_path}/bundles); "
        "built-in models are off (TT_VLLM_BUILTIN_MODELS)"
    )


def test_a_bundle_comes_before_a_built_in(environ, bundle):
    bundle("mine", arch="LlamaForCausalLM")
    found = resolve(environ)
    assert found.entries["TTLlamaForCausalLM"].source == "bundle"
    assert [entry.arch for entry in found.replaced] == ["TTLlamaForCausalLM"]


def test_the_first_of_two_bundles_wins(environ, bundle):
    bundle("b", arch="LlamaForCausalLM")
    bundle("a", arch="TTLlamaForCausalLM")
    found = resolve(environ)
    assert found.entries["TTLlamaForCausalLM"].bundle.name == "a"
    assert [(lost.bundle.name, lost.winner.origin) for lost in found.shadowed] == [("b", "bundle a")]


def test_a_bundle_may_serve_several_architectures(environ, bundle):
    bundle("a", arch="AForCausalLM", architectures=["AForCausalLM", "BForCausalLM"])
    bundle("b", arch="BForCausalLM", architectures=["BForCausalLM", "CForCausalLM"])
    found = resolve({**environ, "TT_VLLM_BUILTIN_MODELS": "off"})
    assert {arch: entry.bundle.name for arch, entry in found.entries.items()} == {
        "TTAForCausalLM": "a",
        "TTBForCausalLM": "a",
        "TTCForCausalLM": "b",
    }


def test_an_override_comes_before_all(environ, bundle):
    bundle("mine", arch="LlamaForCausalLM")
    overrides = "LlamaForCausalLM=my.gen:Llama, TTNovel=my.gen:Novel"
    found = resolve({**environ, "TT_MODEL_CLASS_OVERRIDES": overrides})
    assert classes(found, "override") == {"TTLlamaForCausalLM": "my.gen:Llama", "TTNovel": "my.gen:Novel"}
    assert found.entries["TTNovel"].plain is None
    assert [lost.winner.origin for lost in found.shadowed] == ["TT_MODEL_CLASS_OVERRIDES"]


def test_selectors_choose_the_class():
    found = resolve({"TT_LLAMA_TEXT_VER": "llama3_70b_galaxy"})
    llama = found.entries["TTLlamaForCausalLM"]
    assert llama.main_class == "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM"
    assert llama.variant.lanes


def test_a_bad_selector_is_kept_for_who_selects_the_model():
    found = resolve({"TT_LLAMA_TEXT_VER": "llama4"})
    assert "TTLlamaForCausalLM" not in found.entries
    assert list(found.faults) == ["TTLlamaForCausalLM"]


def test_a_bad_selector_of_a_replaced_model_does_not_matter(environ, bundle):
    bundle("mine", arch="LlamaForCausalLM")
    assert resolve({**environ, "TT_LLAMA_TEXT_VER": "llama4"}).faults == {}


def test_a_bad_variable_is_kept_for_any_selection():
    found = resolve({"TT_MODEL_CLASS_OVERRIDES": "Llama", "TT_VLLM_BUILTIN_MODELS": "maybe"})
    assert list(found.faults) == [""]
    assert found.entries


def test_requirements_can_be_ignored(environ, bundle):
    bundle("mine", arch="NovelForCausalLM", requires={"vllm-tt": ">=9999"})
    assert "TTNovelForCausalLM" not in resolve(environ).entries
    assert "TTNovelForCausalLM" in resolve({**environ, "TT_BUNDLE_IGNORE_REQUIRES": "1"}).entries


def test_the_table_itself_raises_for_a_bad_selector():
    with pytest.raises(ValueError, match="TT_QWEN3_TEXT_VER='x' selects no generator"):
        builtin_entries({"TT_QWEN3_TEXT_VER": "x"})
