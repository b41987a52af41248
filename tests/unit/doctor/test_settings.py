import json

import pytest

from vllm_tt.doctor.settings import bundles, variables


def told(items):
    return [(item.topic, item.level, item.found) for item in items]


def test_values_that_can_be_read_and_one_that_cannot():
    items = list(variables({"TT_EMULATE": "N300", "MESH_DEVICE": "huge", "TT_VLLM_CACHE": " "}))
    assert told(items) == [
        ("environment", "ok", "TT_EMULATE=N300"),
        ("environment", "problem", "MESH_DEVICE=huge"),
        ("VLLM_PLUGINS", "ok", "not set: all plugins are loaded"),
    ]
    assert items[1].remedy.startswith("Expected one of N150, ")


@pytest.mark.parametrize(
    ("value", "level", "found"),
    [
        ("tt", "ok", "tt"),
        ("a,tt", "ok", "a,tt"),
        ("a", "problem", "a: 'tt' is left out"),
        ("", "problem", "empty: 'tt' is left out"),
    ],
)
def test_the_list_of_plugins(value, level, found):
    assert told(variables({"VLLM_PLUGINS": value})) == [("VLLM_PLUGINS", level, found)]


def test_bundles_found_skipped_and_shadowed(tmp_path):
    for name, text in {
        "a": json.dumps({"arch": "NovelForCausalLM", "main_class": "g:N"}),
        "b": json.dumps({"arch": "NovelForCausalLM", "main_class": "g:N"}),
        "c": "[]",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vllm_metadata.json").write_text(text)
    items = list(bundles({"EXTRA_MODELS_DIR": str(tmp_path), "TT_VLLM_BUILTIN_MODELS": "0"}))
    assert told(items)[:4] == [
        ("bundle", "problem", "c is skipped: must be a JSON object, got a list"),
        ("bundle", "note", "b is shadowed: bundle a serves TTNovelForCausalLM"),
        ("bundle", "ok", "a: TTNovelForCausalLM -> g:N"),
        ("tt-metal", "ok", "its generators are switched off (TT_VLLM_BUILTIN_MODELS)"),
    ]
    assert items[0].remedy == f"tt-bundle validate {tmp_path / 'c'}"


def test_a_folder_that_is_not_there():
    items = told(bundles({"EXTRA_MODELS_DIR": "/no/such"}))
    assert items[0] == ("bundles", "problem", "EXTRA_MODELS_DIR: /no/such is not a directory")


def test_a_bad_selector_is_a_problem():
    items = [item for item in bundles({"TT_LLAMA_TEXT_VER": "x"}) if item.level == "problem"]
    assert items[0].found.startswith("TT_LLAMA_TEXT_VER='x' selects no generator for TTLlamaForCausalLM.")
