from bundle_cases import ROOT

from vllm_tt.models.builtin_table import BUILTINS
from vllm_tt.models.inventory import builtin_rows, bundle_rows
from vllm_tt.models.resolve import resolve


def test_each_bundle_has_its_rows(bundle, tmp_path):
    bundle("a", arch="AForCausalLM", architectures=["BForCausalLM", "AForCausalLM"])
    bundle("c", arch="BForCausalLM", main_class="gen:B")
    broken = tmp_path / "bundles/b"
    broken.mkdir()
    (broken / "vllm_metadata.json").write_text("[]")
    rows = bundle_rows(resolve({"EXTRA_MODELS_DIR": str(tmp_path / "bundles")}))
    assert [(row.status, row.bundle, row.arch, row.reason) for row in rows] == [
        ("ok", "a", "TTAForCausalLM", None),
        ("ok", "a", "TTBForCausalLM", None),
        ("skipped", "b", None, "must be a JSON object, got a list"),
        ("shadowed", "c", "TTBForCausalLM", "already registered by bundle a"),
    ]


def test_a_row_for_every_folder_of_the_faulty_ones():
    rows = bundle_rows(resolve({"EXTRA_MODELS_DIR": str(ROOT / "invalid")}))
    assert {row.folder.name for row in rows} == {path.name for path in (ROOT / "invalid").iterdir()}


def test_a_row_for_each_built_in_class():
    rows = builtin_rows()
    assert len(rows) == sum(len(builtin.variants) for builtin in BUILTINS)
    assert [row.selector for row in rows if row.arch == "TTQwen3ForCausalLM" and row.default] == [
        "TT_QWEN3_TEXT_VER=tt_transformers"
    ]


def test_what_cannot_be_served_yet_is_said(nothing_served_yet):
    rows = {row.arch: (row.served, row.missing) for row in builtin_rows()}
    assert rows["TTQwen3VLForConditionalGeneration"] == ("not yet", ("images in the prompt",))
    assert rows["TTGptOssForCausalLM"] == ("yes", ())


def test_rows_by_name_and_by_machine():
    assert {row.arch for row in builtin_rows("gemma3")} == {"TTGemma3ForConditionalGeneration"}
    on_galaxy = [row.selector for row in builtin_rows("ttllama", "TG")]
    assert on_galaxy == ["TT_LLAMA_TEXT_VER=tt_transformers", "TT_LLAMA_TEXT_VER=llama3_70b_galaxy"]
    assert builtin_rows("qwen3_5", "N300") == []
