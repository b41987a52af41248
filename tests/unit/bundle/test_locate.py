import json

import pytest

from vllm_tt.bundle.locate import BundleBroken, BundleNotFound, locate


@pytest.fixture
def bundles(tmp_path):
    for folder, more in (("llama", {}), ("org__qwen", {"name": "qwen"}), ("qwen-old", {"name": "llama"})):
        (tmp_path / folder).mkdir()
        metadata = {"arch": "XForCausalLM", "main_class": "m:X", **more}
        (tmp_path / folder / "vllm_metadata.json").write_text(json.dumps(metadata))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "vllm_metadata.json").write_text("[]")
    (tmp_path / "plain").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "folder"),
    [("llama", "llama"), ("qwen", "org__qwen"), ("org__qwen", "org__qwen"), ("qwen-old", "qwen-old")],
)
def test_names_are_folders_first_then_what_the_metadata_says(bundles, name, folder):
    assert locate(name, str(bundles)).folder == bundles / folder


def test_a_folder_needs_no_variable(bundles, monkeypatch):
    assert locate(str(bundles / "llama")).folder == bundles / "llama"
    monkeypatch.chdir(bundles)
    assert locate("llama").folder == bundles / "llama"
    monkeypatch.chdir(bundles / "llama")
    assert locate(".").folder == bundles / "llama"


def test_a_name_that_is_not_there(bundles):
    with pytest.raises(BundleNotFound) as caught:
        locate("lama", str(bundles))
    assert str(caught.value) == (
        "There is no bundle 'lama': it is no folder with a vllm_metadata.json, and none of that name is in "
        f"{bundles}. Did you mean llama?"
    )


def test_a_name_without_the_variable():
    with pytest.raises(BundleNotFound) as caught:
        locate("llama")
    assert str(caught.value) == (
        "There is no bundle 'llama': it is no folder with a vllm_metadata.json, and EXTRA_MODELS_DIR is not set."
    )


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("broken", "must be a JSON object, got a list"),
        ("plain", "no vllm_metadata.json in it (not a bundle folder)"),
    ],
)
def test_a_bundle_that_cannot_be_used(bundles, folder, reason):
    with pytest.raises(BundleBroken) as caught:
        locate(str(bundles / folder))
    path = bundles / folder
    assert str(caught.value) == (f"{path} cannot be served: {reason}. Run 'tt-bundle validate {path}' for details.")
