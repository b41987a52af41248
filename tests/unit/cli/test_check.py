import json
from pathlib import Path

import pytest
import tiny_llama
from click.testing import CliRunner

from vllm_tt.cli import main

SAMPLING = ("async-overlap", "device-sampling", "reloads", "row-logits", "seeds", "penalties", "logprobs")
ORACLE = Path(__file__).parents[2] / "bundles_for_serving" / "paged-hash"


def run(*arguments, **environ):
    return CliRunner(env={"OMP_NUM_THREADS": "1", **environ}).invoke(main, ["check", *map(str, arguments)])


@pytest.fixture(scope="module")
def oracle_model(tmp_path_factory):
    from oracle import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")


def test_the_oracle_passes_row_by_row(oracle_model):
    result = run(ORACLE, "--model", oracle_model, "--block-size", 16)
    assert result.stdout.splitlines() == [
        "PASS  load            PagedHashForCausalLM with 8 slots",
        "PASS  kv-cache        65 pages of 16 tokens, 1 layers",
        "PASS  warm-up         nothing is compiled",
        "PASS  warm-up-covers  the adapter computes on the host: nothing is compiled",
        "PASS  prefill-decode  prefill then decode equals one longer prefill",
        "PASS  chunks          a prompt in chunks equals the prompt at once",
        "PASS  prefix-caching  a prompt over cached pages equals the prompt at once",
        "PASS  row-alone       every row equals the row alone",
        "PASS  foreign-pages   pages of others stay untouched",
        "PASS  idle-rows       rows at position -1 are ignored",
        "PASS  async-split     the asynchronous split equals the synchronous call",
        "PASS  slots           a slot keeps nothing of the request before, and is left alone while others compute",
        "SKIP  windows         no layer has a window",
        *(f"SKIP  {name:15} supports_sample_on_device is not declared" for name in SAMPLING),
        "SKIP  lanes           supports_lanes is not declared",
        "",
        "PASSED: 12 passed, 0 failed, 9 skipped",
    ]
    assert result.exit_code == 0


def test_a_failed_row_shows_the_smallest_case(tmp_path):
    CliRunner().invoke(main, ["new", str(tmp_path / "b"), "--arch", "LlamaForCausalLM"])
    file = tmp_path / "b" / "generator_vllm.py"
    wrong = """
    def decode_forward(self, *, start_pos, **inputs):
        return super().decode_forward(start_pos=start_pos.clamp(max=6), **inputs)
"""
    file.write_text(file.read_text() + wrong)
    result = run(tmp_path / "b", "--model", tiny_llama.write_checkpoint(tmp_path / "model"), "--block-size", 8)
    lines = result.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("FAIL"))
    assert lines[at].startswith("FAIL  prefill-decode  decode step 1 and a prefill of 8 tokens: the logits differ by ")
    assert lines[at + 1] == f"{'':22}smallest case: 7 tokens in slot 0, 1 decode step"
    assert lines[-1].startswith("FAILED: ")
    assert result.exit_code == 1


def test_a_dry_run_as_one_document(oracle_model):
    lanes = {"PAGED_HASH_CAPABILITIES": "supports_async_decode,supports_lanes"}
    result = run(ORACLE, "--model", oracle_model, "--dry-run", "--mesh", "N150", "--json", **lanes)
    document = json.loads(result.stdout)
    assert (document["ok"], result.exit_code) == (True, 0)
    assert document["summary"] == {"pass": 7, "fail": 0, "skip": 1}
    assert document["rows"][-1] == {
        "name": "lanes",
        "status": "skip",
        "detail": "a mesh of 1 chip does not divide into lanes; --mesh names another",
        "case": "",
        "place": "",
    }
    assert document["request"]["mesh"] == "N150"
    assert document["rows"][0] == {
        "name": "load",
        "status": "pass",
        "detail": "PagedHashForCausalLM with 32 slots",
        "case": "",
        "place": "",
    }


def test_a_checkpoint_that_is_not_there(tmp_path):
    result = run(ORACLE, "--model", tmp_path / "none")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"tt-bundle: error: The configuration of {tmp_path}/none cannot be read: ")
