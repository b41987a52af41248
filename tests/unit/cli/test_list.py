import json

import pytest
from bundle_cases import ROOT
from click.testing import CliRunner

from vllm_tt.cli import main


@pytest.fixture
def folder(tmp_path):
    texts = {
        "broken": "[]",
        "good": '{"arch": "NovelForCausalLM", "main_class": "gen:Novel"}',
        "late": '{"arch": "NovelForCausalLM", "main_class": "gen:Novel"}',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vllm_metadata.json").write_text(text)
    return tmp_path


def run(*arguments, **env):
    return CliRunner(env={"EXTRA_MODELS_DIR": None, **env}).invoke(main, ["list", *arguments])


def test_every_bundle_with_what_became_of_it(folder):
    result = run(EXTRA_MODELS_DIR=str(folder))
    assert result.stdout == (
        f"{folder}:\n"
        "  skipped   broken  -                   must be a JSON object, got a list\n"
        "  ok        good    TTNovelForCausalLM  gen:Novel\n"
        "  shadowed  late    TTNovelForCausalLM  already registered by bundle good\n"
        f"TT models: 1 architecture from 1 folder, 1 skipped ({folder}); 15 built in\n"
    )
    assert result.exit_code == 1


def test_only_what_is_not_registered(folder):
    lines = run("--dir", str(folder), "--broken").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["skipped", "shadowed"]


def test_good_bundles_alone_are_fine():
    result = run("--dir", str(ROOT / "valid"))
    assert result.exit_code == 0


def test_the_folder_on_the_command_line_wins(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    result = run("--dir", str(other), EXTRA_MODELS_DIR=str(folder))
    assert result.stdout.splitlines()[:2] == [f"{other}:", "  nothing to show"]
    assert result.exit_code == 0


def test_a_folder_that_is_not_there():
    result = run("--dir", "/no/such/folder")
    assert result.stdout.splitlines()[0] == "error: EXTRA_MODELS_DIR: /no/such/folder is not a directory"
    assert result.exit_code == 4


def test_a_bundle_in_place_of_its_parent(folder):
    result = run("--dir", str(folder / "good"))
    assert "itself looks like a bundle; point it at the parent directory" in result.stdout
    assert result.exit_code == 1


def test_one_document(folder):
    result = run("--dir", str(folder), "--json")
    document = json.loads(result.stdout)
    assert [row["status"] for row in document["bundles"]] == ["skipped", "ok", "shadowed"]
    assert document["summary"] == {"ok": 1, "shadowed": 1, "skipped": 1}
    assert document["findings"] == [
        {
            "code": "TB105",
            "severity": "error",
            "path": str(folder / "broken"),
            "line": None,
            "column": None,
            "message": "must be a JSON object, got a list",
            "hint": None,
        }
    ]
    assert (document["ok"], document["error"], result.exit_code) == (False, None, 1)


def test_the_built_in_table():
    lines = run("--builtin").stdout.splitlines()
    assert lines[0].split() == ["REGISTERED", "VARIANT", "MESHES", "SERVED"]
    assert lines[1].split() == ["TTLlamaForCausalLM", "tt_transformers", "any", "yes"]
    rows = json.loads(run("--builtin", "--json").stdout)["builtin"]
    assert len(rows) == sum(line.startswith("TT") for line in lines)


def test_the_built_in_models_of_a_name_and_a_machine():
    (row,) = json.loads(run("--builtin", "--arch", "qwen3for", "--mesh", "T3K", "--json").stdout)["builtin"]
    assert row == {
        "arch": "TTQwen3ForCausalLM",
        "models": "Qwen 3 text models",
        "selector": "TT_QWEN3_TEXT_VER=tt_transformers",
        "default": True,
        "main_class": "models.tt_transformers.tt.generator_vllm:QwenForCausalLM",
        "served": "yes",
        "missing": [],
        "lanes": False,
        "meshes": [],
        "capacities": [
            {"tokens": 131072, "models": "", "meshes": []},
            {"tokens": 32768, "models": "Qwen3-8B", "meshes": ["N150"]},
        ],
        "variables": [],
        "options": {},
        "notes": ["--max-model-len should be a power of two: warm-up takes those"],
        "test_model": False,
    }


@pytest.mark.parametrize("arguments", [("--arch", "qwen"), ("--mesh", "TG")], ids=["arch", "mesh"])
def test_the_choice_is_among_built_in_models(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "--arch and --mesh choose among built-in models: add --builtin." in result.stderr


def test_a_bad_selector_is_shown(folder):
    result = run("--dir", str(folder), TT_LLAMA_TEXT_VER="llama4")
    assert result.stdout.startswith("error: TT_LLAMA_TEXT_VER='llama4' selects no generator for TTLlamaForCausalLM.")
