"""Checks in processes of their own, on emulated meshes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_tt.bundle.scaffold import NewBundle, files, write
from vllm_tt.conformance.check import CannotCheck, CheckMisused, check
from vllm_tt.conformance.request import Request

DRY = {"dry_run": True, "max_model_len": 128, "max_num_seqs": 32, "mesh": "N300"}


@pytest.fixture(scope="module", autouse=True)
def one_thread_each():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def skeleton(tmp_path):
    """``skeleton(old, new)``: the ttnn template with one text replaced."""

    def make(*replaced):
        made = files(NewBundle(template="ttnn", arch="LlamaForCausalLM", name="skeleton"))
        for old, new in replaced:
            assert old in made["generator_vllm.py"]
            made["generator_vllm.py"] = made["generator_vllm.py"].replace(old, new)
        write(tmp_path / "skeleton", made)
        return str(tmp_path / "skeleton")

    return make


def test_an_adapter_on_the_host_passes_on_an_emulated_mesh(tiny, tmp_path):
    write(tmp_path / "b", files(NewBundle(template="host", arch="LlamaForCausalLM", name="b")))
    heard = []
    report = check(Request(folder=str(tmp_path / "b"), model=str(tiny), block_size=16, mesh="P150x2"), heard.append)
    assert [(row.name, row.status) for row in report.rows] == [
        ("load", "pass"),
        ("kv-cache", "pass"),
        ("warm-up", "pass"),
        ("warm-up-covers", "pass"),
        ("prefill-decode", "pass"),
        ("chunks", "pass"),
        ("prefix-caching", "pass"),
        ("row-alone", "pass"),
        ("foreign-pages", "pass"),
        ("idle-rows", "pass"),
        ("async-split", "pass"),
        ("slots", "pass"),
        ("windows", "skip"),
        ("async-overlap", "pass"),
        ("device-sampling", "pass"),
        ("reloads", "pass"),
        ("row-logits", "pass"),
        ("seeds", "pass"),
        ("penalties", "pass"),
        ("logprobs", "pass"),
        ("lanes", "pass"),
    ]
    assert report.ok
    assert tuple(heard) == report.rows
    assert report.facts["operations"] == {}
    assert (report.facts["adapter"], report.facts["dtype"]) == ("LlamaForCausalLM", "float32")


def test_an_adapter_of_ttnn_operations_passes_the_dry_run(tiny, skeleton):
    report = check(Request(folder=skeleton(), model=str(tiny), **DRY))
    assert [(row.name, row.status, row.case) for row in report.rows] == [
        (name, "pass", "")
        for name in (
            "load",
            "kv-cache",
            "warm-up",
            "warm-up-covers",
            "prefill",
            "decode",
            "async-split",
            "device-sampling",
            "memory",
        )
    ]
    details = {row.name: row.detail for row in report.rows}
    assert details["decode"].startswith("2 rows and 30 idle slots give [32, 256]; ")
    assert re.fullmatch(
        r"weights \S+ MB, KV cache 3.15 MB, warm-up \S+ MB; \S+ MB of 12\.82 GB on each chip", details["memory"]
    )
    assert report.facts["operations"]["ttnn.rms_norm"] > 100


def test_a_wrong_layout_is_named_with_its_operation_and_line(tiny, skeleton):
    folder = skeleton(("tokens, self.embedding, layout=ttnn.TILE_LAYOUT", "tokens, self.embedding"))
    *before, row = check(Request(folder=folder, model=str(tiny), **DRY)).rows
    assert [one.status for one in before] == ["pass", "pass"]
    assert (row.name, row.status) == ("warm-up", "fail")
    assert row.detail == (
        "ttnn.rms_norm([1, 1, 32, 128] bfloat16 ROW_MAJOR DRAM interleaved, weight=[1, 128] bfloat16 TILE DRAM "
        "interleaved, epsilon=1e-05): input_tensor.layout() != Layout::ROW_MAJOR: ttnn::rms_norm does not support "
        "ROW_MAJOR input tensors. Use TILE layout"
    )
    assert re.fullmatch(r"generator_vllm\.py:\d+, qkv = ttnn\.linear\(ttnn\.rms_norm\(hidden, .*", row.place)


def test_a_warm_up_that_leaves_shapes_out_is_found(tiny, skeleton):
    report = check(Request(folder=skeleton(("length *= 2", "length *= 4")), model=str(tiny), **DRY))
    row = next(row for row in report.rows if row.status == "fail")
    assert row.name == "warm-up-covers"
    assert row.case == "a prefill of 1 row, 33 tokens"
    assert re.fullmatch(r"a prefill of 1 row, 33 tokens compiles what warm-up has not \(programs: \d+\)", row.detail)


def test_numbers_of_an_emulated_mesh_are_not_compared(tiny, skeleton):
    with pytest.raises(CheckMisused) as caught:
        check(Request(folder=skeleton(), model=str(tiny), max_model_len=64, max_num_seqs=32))
    assert str(caught.value).endswith(
        "there is nothing to compare. Add --dry-run to check every call's shapes and arguments, or run on devices."
    )


def test_a_process_that_dies_is_a_failed_row(tiny, skeleton):
    line = '"""Start copying a handle to the host.'
    report = check(
        Request(
            folder=skeleton((line, f"import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n        {line}")),
            model=str(tiny),
            **DRY,
        )
    )
    row = report.rows[-1]
    assert (row.name, row.status) == ("async-split", "fail")
    assert row.detail == "the process was ended by SIGSEGV"
    assert re.fullmatch(r"generator_vllm\.py:\d+", row.place)


def test_an_adapter_that_does_not_import_is_a_failed_row(tiny, skeleton):
    report = check(
        Request(folder=skeleton(("import ttnn\n", "import ttnn\nimport no_such_module\n")), model=str(tiny), **DRY)
    )
    assert [(row.name, row.status) for row in report.rows] == [("load", "fail")]
    assert "No module named 'no_such_module'" in report.rows[0].detail


def test_a_checkpoint_that_is_not_there_is_misuse(skeleton):
    with pytest.raises(CheckMisused, match="The configuration of /no/such/model cannot be read: "):
        check(Request(folder=skeleton(), model="/no/such/model", **DRY))


def test_a_mesh_that_cannot_be_opened_is_not_the_adapters_fault(tiny, skeleton, monkeypatch):
    monkeypatch.setenv("MESH_DEVICE", "(3,5)")
    with pytest.raises((CannotCheck, CheckMisused), match="MESH_DEVICE"):
        check(Request(folder=skeleton(), model=str(tiny), **DRY | {"mesh": None}))


def test_an_interrupted_check_leaves_nothing(tiny, tmp_path):
    write(tmp_path / "b", files(NewBundle(template="host", arch="LlamaForCausalLM", name="b")))
    places = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", "from vllm_tt.cli import main; main()", "check", str(tmp_path / "b")]
    process = subprocess.Popen(
        [*command, "--model", str(tiny)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=places
    )
    assert process.stdout.readline().startswith("PASS  load ")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "tt-bundle: error: interrupted\n")
    assert not Path(f"/proc/{children[0]}").exists()
    assert not list(tmp_path.glob("tt-check-*"))
