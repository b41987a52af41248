import json

import pytest
from click.testing import CliRunner

from vllm_tt.bundle.reading import load
from vllm_tt.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["new", *map(str, arguments)])


def test_a_bundle_with_defaults(tmp_path):
    result = run(tmp_path / "novel", "--arch", "NovelForCausalLM")
    folder = tmp_path / "novel"
    assert (result.exit_code, result.stdout) == (
        0,
        "".join(f"wrote {folder}/{name}\n" for name in ("README.md", "generator_vllm.py", "vllm_metadata.json"))
        + f"Next: tt-bundle validate {folder}\n",
    )
    assert load(folder).metadata.name == "novel"


def test_one_document(tmp_path):
    document = json.loads(run(tmp_path / "n", "--arch", "A", "--name", "mine", "--json").stdout)
    assert document["files"] == ["README.md", "generator_vllm.py", "vllm_metadata.json"]
    assert load(tmp_path / "n").metadata.name == "mine"


def test_a_generator_of_tt_metal(tmp_path):
    assert run(tmp_path / "q", "--arch", "Qwen3ForCausalLM", "--template", "builtin").exit_code == 0
    assert load(tmp_path / "q").metadata.main_class == "models.tt_transformers.tt.generator_vllm:QwenForCausalLM"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--arch", "Lama3ForCausalLM", "--template", "builtin"],
            2,
            (
                "tt-metal has no generator for Lama3ForCausalLM. Did you mean LlamaForCausalLM or Gemma4ForCausalLM "
                "or Qwen3ForCausalLM? 'tt-bundle list --builtin' shows what it has."
            ),
        ),
        (["--arch", "A", "--launch"], 2, "A launch entry names the weights it starts with: add --hf-weights ORG/NAME."),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_written(tmp_path, arguments, code, message):
    result = run(tmp_path / "x", *arguments)
    assert (result.exit_code, result.stderr) == (code, f"tt-bundle: error: {message}\n")
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_not_empty_needs_force(tmp_path):
    (tmp_path / "file").touch()
    assert run(tmp_path, "--arch", "A").exit_code == 4
    assert run(tmp_path, "--arch", "A", "--force").exit_code == 0
