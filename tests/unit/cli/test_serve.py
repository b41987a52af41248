import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vllm_tt.cli import main


@pytest.fixture
def bundle(tmp_path):
    (tmp_path / "my bundles" / "novel").mkdir(parents=True)
    metadata = {"arch": "NovelForCausalLM", "main_class": "g:N", "hf_weights": "org/novel", "name": "novel-1"}
    (tmp_path / "my bundles" / "novel" / "vllm_metadata.json").write_text(json.dumps(metadata))
    return tmp_path / "my bundles" / "novel"


def run(*arguments, **environ):
    cleared = {"EXTRA_MODELS_DIR": None, "TT_EMULATE": None, "MESH_DEVICE": None}
    return CliRunner(env=cleared | environ).invoke(main, ["serve", *map(str, arguments)])


def test_the_command_is_printed_as_a_shell_takes_it(bundle):
    result = run(bundle, "--print", "--", "--port", "8000", "--served-model-name", "a model")
    line = f"EXTRA_MODELS_DIR='{bundle.parent}' vllm serve org/novel --port 8000 --served-model-name 'a model'\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, line, "")


@pytest.mark.parametrize("name", ["novel", "novel-1"])
def test_a_bundle_by_its_name(bundle, name):
    result = run(name, "--print", "--model", "/weights", EXTRA_MODELS_DIR=str(bundle.parent))
    assert result.stdout == f"EXTRA_MODELS_DIR='{bundle.parent}' vllm serve /weights\n"


def test_one_document_runs_nothing(bundle):
    document = json.loads(run(bundle, "--json").stdout)
    assert document["words"] == ["vllm", "serve", "org/novel"]
    assert document["environ"] == {"EXTRA_MODELS_DIR": str(bundle.parent)}


def test_notes_go_to_stderr(bundle):
    metadata = json.loads((bundle / "vllm_metadata.json").read_text()) | {"mesh_devices": ["T3K"]}
    (bundle / "vllm_metadata.json").write_text(json.dumps(metadata))
    result = run(bundle, "--print", TT_EMULATE="N300")
    assert result.stderr == "tt-bundle: note: bundle novel was made for T3K; this mesh is N300\n"


def test_a_name_that_is_not_there(bundle):
    result = run("nowel", "--print", EXTRA_MODELS_DIR=str(bundle.parent))
    assert result.exit_code == 2
    assert "Did you mean novel" in result.stderr


def test_the_server_takes_the_place_of_the_command(bundle, tmp_path):
    """A stand-in for vllm, on PATH, in an interpreter without one beside it."""
    (tmp_path / "bin").mkdir()
    vllm = tmp_path / "bin" / "vllm"
    vllm.write_text('#!/bin/sh\necho "$$ $EXTRA_MODELS_DIR"; printf "%s\\n" "$@"; exit 7\n')
    vllm.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    code = f"import sys; sys.executable = {str(tmp_path / 'bin' / 'python')!r}; from vllm_tt.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(bundle), "--", "--port", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EXTRA_MODELS_DIR": str(Path.cwd())},
    )
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == [f"{process.pid} {bundle.parent}", "serve", "org/novel", "--port", "1"]
    assert err == f"EXTRA_MODELS_DIR='{bundle.parent}' vllm serve org/novel --port 1\n"
    assert process.returncode == 7
