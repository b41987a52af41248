"""A bundle from a template to tokens: made, validated, packed, unpacked elsewhere, verified, registered, served."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import smollm2
from click.testing import CliRunner

from vllm_tt.cli import main

SUPPORT = Path(__file__).parents[1] / "support"
GENERATE = """
import json, sys
sys.path.insert(0, sys.argv[2])
from engine import engine
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
question = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
with engine(sys.argv[1], max_model_len=256, max_num_seqs=2) as running:
    running.add("r", prompt, max_tokens=8)
    running.run()
    adapter = sys.modules[type(running.worker.get_model()).__module__].__file__
    print(json.dumps({"text": tokenizer.decode(running.tokens["r"]), "adapter": adapter}))
"""


def tt_bundle(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("template", ["host", "ttnn", "builtin"])
def test_from_a_template_to_an_installed_bundle(template, tmp_path):
    written, installed = tmp_path / "author" / "capital", tmp_path / "user"
    tt_bundle("new", written, "--arch", "LlamaForCausalLM", "--template", template)
    # A generator of tt-metal cannot be looked at where tt-metal is not installed, which is a warning.
    unseen = ["--ignore", "TB302"] if template == "builtin" else []
    tt_bundle("validate", written, "--strict", *unseen)
    tt_bundle("pack", written, "-o", tmp_path / "capital.tar.gz", "--no-progress")
    tt_bundle("verify", tmp_path / "capital.tar.gz", "--require-lock", "--strict", "--no-progress")
    installed.mkdir()
    tt_bundle("unpack", tmp_path / "capital.tar.gz", "--into", installed, "--require-lock", "--no-progress")
    tt_bundle("verify", installed / "capital", "--require-lock", "--strict", "--no-progress")
    rows = json.loads(tt_bundle("list", "--dir", installed, "--json"))["bundles"]
    assert [(row["bundle"], row["arch"], row["status"]) for row in rows] == [("capital", "TTLlamaForCausalLM", "ok")]
    for file in written.iterdir():
        assert (installed / "capital" / file.name).read_bytes() == file.read_bytes()


def test_an_installed_bundle_generates_tokens(tmp_path):
    tt_bundle("new", tmp_path / "capital", "--arch", "LlamaForCausalLM")
    tt_bundle("pack", tmp_path / "capital", "-o", tmp_path / "capital.tar.gz", "--no-progress")
    installed = tmp_path / "installed"
    installed.mkdir()
    tt_bundle("unpack", tmp_path / "capital.tar.gz", "--into", installed, "--no-progress")
    environ = {"EXTRA_MODELS_DIR": str(installed), "TT_VLLM_BUILTIN_MODELS": "0", "TT_EMULATE": "N300"}
    done = subprocess.run(
        [sys.executable, "-c", GENERATE, str(smollm2.checkpoint()), str(SUPPORT)],
        env={**os.environ, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == {
        "text": "The capital of France is Paris.<|im_end|>",
        "adapter": str(installed / "capital" / "generator_vllm.py"),
    }


@pytest.mark.timeout(600)
def test_the_reference_bundle_passes_its_check_with_the_real_model():
    bundle = Path(__file__).parents[2] / "bundles" / "llama-host"
    arguments = ["check", bundle, "--model", smollm2.checkpoint(), "--max-num-seqs", 4, "--block-size", 16]
    assert tt_bundle(*arguments, "--mesh", "N300").splitlines()[-1] == "PASSED: 20 passed, 0 failed, 1 skipped"
    dry = tt_bundle(*arguments, "--max-model-len", 256, "--dry-run").splitlines()
    assert dry[-1] == "PASSED: 9 passed, 0 failed, 0 skipped"
