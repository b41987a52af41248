import pytest
from bundle_cases import INVALID, expected

from vllm_tt.env import EnvError
from vllm_tt.models.builtin import NotServedYet, SelectorError, VariableMissing
from vllm_tt.models.registry import TestModelRefused, UnknownArchitecture, find, report
from vllm_tt.models.resolve import resolve


@pytest.fixture
def resolved(tmp_path):
    """The registry of this test's bundles and the given variables."""

    def make(**environ):
        (tmp_path / "bundles").mkdir(exist_ok=True)
        return resolve({"EXTRA_MODELS_DIR": str(tmp_path / "bundles"), **environ})

    return make


BUILT_IN = "models.tt_transformers.tt.generator_vllm"


def message(registry, *architectures, kind=UnknownArchitecture):
    with pytest.raises(kind) as caught:
        find(registry, architectures)
    return str(caught.value)


@pytest.mark.parametrize(
    ("architectures", "name"),
    [
        (["LlamaForCausalLM"], "TTLlamaForCausalLM"),
        (["TTLlamaForCausalLM"], "TTLlamaForCausalLM"),
        (["Unheard", "Qwen2ForCausalLM", "LlamaForCausalLM"], "TTQwen2ForCausalLM"),
    ],
)
def test_plain_and_prefixed_names_find_the_entry(resolved, architectures, name):
    assert find(resolved(), architectures).arch == name


def test_an_unknown_architecture_names_all_there_is_to_know(resolved, bundle, tmp_path):
    bundle("good", arch="NovelForCausalLM")
    bad = tmp_path / "bundles/bad"
    bad.mkdir()
    (bad / "vllm_metadata.json").write_text('{"arch": "NovelistForCausalLM"}')
    assert message(resolved(), "NovelsForCausalLM") == (
        "No Tenstorrent model serves NovelsForCausalLM. Nearest registered: TTNovelForCausalLM, TTQwen3ForCausalLM, "
        "TTQwen2ForCausalLM.\n"
        f"Scanned {tmp_path}/bundles: 1 bundle, 1 skipped.\n"
        f"Skipped bundle {bad}: missing required key 'main_class'."
    )


def test_without_bundles_or_anything_near():
    assert message(resolve({}), "Zzz") == (
        "No Tenstorrent model serves Zzz. None of the 15 registered architectures is close; 'tt-bundle list' shows "
        "them.\nNo bundles were looked for: EXTRA_MODELS_DIR is not set."
    )


def test_with_built_ins_off_and_an_empty_folder(resolved, tmp_path):
    assert message(resolved(TT_VLLM_BUILTIN_MODELS="0"), "LlamaForCausalLM") == (
        "No Tenstorrent model serves LlamaForCausalLM. No model is registered at all.\n"
        f"Scanned {tmp_path}/bundles: 0 bundles, 0 skipped.\n"
        "TT_VLLM_BUILTIN_MODELS=0 leaves out the models built into tt-metal, TTLlamaForCausalLM among them, and no "
        "bundle is registered: set EXTRA_MODELS_DIR to a folder of bundle folders, or unset it."
    )


def test_with_built_ins_off_and_another_bundle(resolved, bundle, tmp_path):
    bundle("good", arch="NovelForCausalLM")
    assert message(resolved(TT_VLLM_BUILTIN_MODELS="0"), "Zzz").splitlines()[-1] == (
        "TT_VLLM_BUILTIN_MODELS=0 leaves out the models built into tt-metal."
    )


def test_a_checkpoint_without_architecture():
    assert message(resolve({})).startswith(
        "No Tenstorrent model serves a checkpoint that declares no architecture. None of the "
    )


def test_test_models_need_their_option():
    found = resolve({})
    assert message(found, "DummyNoOpModel", kind=TestModelRefused) == (
        "TTDummyNoOpModel is a test model: to serve it, set the option tt.register_test_models to true."
    )
    assert find(found, ["DummyNoOpModel"], test_models=True).arch == "TTDummyNoOpModel"


def test_errors_of_the_environment_come_up_when_a_model_is_selected(resolved):
    found = resolved(TT_LLAMA_TEXT_VER="llama4")
    assert find(found, ["Qwen2ForCausalLM"])
    message(found, "LlamaForCausalLM", kind=SelectorError)
    assert message(resolved(TT_VLLM_BUILTIN_MODELS="maybe"), "Qwen2ForCausalLM", kind=EnvError).startswith(
        "TT_VLLM_BUILTIN_MODELS='maybe' is not valid: "
    )


def test_the_log_says_what_became_of_everything(resolved, bundle, tmp_path, log):
    folder = tmp_path / "bundles"
    bundle("a", arch="MistralForCausalLM", main_class="gen:A")
    bundle("b", arch="TTMistralForCausalLM", main_class="gen:B")
    bundle("c", arch="NovelForCausalLM", main_class="gen:C", schema_version=7)
    bundle(".tmp-d", arch="HalfForCausalLM")
    (folder / "e").mkdir()
    (folder / "e/vllm_metadata.json").write_text("[1]")
    report(resolved(TT_QWEN3_TEXT_VER="x", TT_MODEL_CLASS_OVERRIDES="QwenX=my:Q"))
    assert log == [
        f"INFO ignoring hidden folder {folder}/.tmp-d",
        (
            f"WARNING Skipping bundle {folder}/e: must be a JSON object, got a list. "
            f"Run 'tt-bundle validate {folder}/e' for details."
        ),
        f"WARNING Bundle {folder}/c: vllm_metadata.json:1:53: written for schema 7; this plugin knows 1",
        "INFO Registered TT model TTQwenX -> my:Q (from TT_MODEL_CLASS_OVERRIDES)",
        "INFO Registered TT model TTMistralForCausalLM -> gen:A (from EXTRA_MODELS_DIR/a)",
        "INFO Registered TT model TTNovelForCausalLM -> gen:C (from EXTRA_MODELS_DIR/c)",
        "WARNING TTMistralForCausalLM already registered by bundle a; ignoring bundle b",
        f"INFO bundle a overrides built-in TTMistralForCausalLM -> {BUILT_IN}:MistralForCausalLM",
        (
            "ERROR TT_QWEN3_TEXT_VER='x' selects no generator for TTQwen3ForCausalLM. "
            "Valid values: tt_transformers, qwen3_32b_galaxy."
        ),
        f"INFO TT models: 2 architectures from 2 folders, 1 skipped ({folder}); 13 built in",
    ]


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.name)
def test_one_warning_for_each_faulty_bundle(case, tmp_path, log):
    (tmp_path / case.name).symlink_to(case)
    report(resolve({"EXTRA_MODELS_DIR": str(tmp_path), "TT_VLLM_BUILTIN_MODELS": "0"}))
    warnings = [line for line in log if not line.startswith("INFO")]
    loud = [line.split()[2] for line in expected(case) if line.startswith("TB") and line.split()[2] in ("skip", "warn")]
    if "skip" in loud:
        assert len(warnings) == 1
        assert warnings[0].startswith(f"WARNING Skipping bundle {tmp_path}/{case.name}: ")
        assert warnings[0].endswith(f". Run 'tt-bundle validate {tmp_path}/{case.name}' for details.")
    else:
        assert len(warnings) == len(loud)


def test_a_built_in_model_that_cannot_be_served_yet_is_refused_whoever_names_it(resolved, bundle, nothing_served_yet):
    path = f"{BUILT_IN}:Gemma3ForConditionalGeneration"
    told = (
        f"TTGemma3ForConditionalGeneration ({path}) cannot be served yet: it takes images in the prompt and several KV "
        "cache groups. 'tt-bundle list --builtin' shows what can."
    )
    assert message(resolved(), "Gemma3ForConditionalGeneration", kind=NotServedYet) == told
    bundle("gemma", arch="Gemma3ForConditionalGeneration", main_class=path)
    assert message(resolved(), "Gemma3ForConditionalGeneration", kind=NotServedYet) == told


def test_a_bundle_of_its_own_may_serve_what_the_built_in_model_cannot(resolved, bundle, nothing_served_yet):
    bundle("gemma", arch="Gemma3ForConditionalGeneration")
    assert find(resolved(), ["Gemma3ForConditionalGeneration"]).source == "bundle"


def test_a_built_in_model_without_its_variable_is_refused(monkeypatch):
    monkeypatch.delenv("DEEPSEEK_V3_HF_MODEL", raising=False)
    assert "needs the variable DEEPSEEK_V3_HF_MODEL" in message(
        resolve({}), "DeepseekV3ForCausalLM", kind=VariableMissing
    )
    monkeypatch.setenv("DEEPSEEK_V3_HF_MODEL", "/weights")
    assert find(resolve({}), ["DeepseekV3ForCausalLM"]).source == "builtin"
