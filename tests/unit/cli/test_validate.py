import json
import subprocess
import sys

import pytest
from bundle_cases import ROOT
from click.testing import CliRunner

from vllm_tt.cli import main
from vllm_tt.mesh import MESH_GRIDS

ADAPTER = (ROOT / "valid/two-keys/adapter.py").read_text()
HEAVY = ["jsonschema", "huggingface_hub", "numpy", "packaging", "rich", "subprocess", "torch", "ttnn", "vllm"]
NO_LAUNCH = "no launch map: 'tt-model serve' of tt-model up to v4 cannot start this bundle"
OVERRIDES = "overrides the built-in TTLlamaForCausalLM -> models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"


def run(*arguments, **env):
    return CliRunner(env={"EXTRA_MODELS_DIR": None, **env}).invoke(main, ["validate", *arguments])


@pytest.fixture
def bundles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "good": '{"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}',
        "bad": '{\n  "arch": "a b",\n  "main_class": "pkg.Model"\n}',
        "odd": '{"arch": "Qwen2ForCausalLM", "main_class": "adapter:Model", "mesh_devices": ["N1"]}',
    }.items():
        (tmp_path / "bundles" / name).mkdir(parents=True)
        (tmp_path / "bundles" / name / "vllm_metadata.json").write_text(text)
        (tmp_path / "bundles" / name / "adapter.py").write_text(ADAPTER)
    return tmp_path / "bundles"


def test_a_good_bundle(bundles):
    result = run("bundles/good")
    assert result.stdout == (
        f"bundles/good/vllm_metadata.json: note TB213 {NO_LAUNCH}\n"
        f"bundles/good/vllm_metadata.json:1:2: note TB602 {OVERRIDES}\n"
        "1 bundle checked, 1 passed: 0 errors, 0 warnings, 2 notes\n"
    )
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_bad_bundle(bundles):
    result = run("bundles/bad")
    assert result.stdout == (
        "bundles/bad/vllm_metadata.json:2:3: error TB203 'arch' must be a Python identifier: 'a b'\n"
        "bundles/bad/vllm_metadata.json:3:3: error TB206 'main_class' must look like 'module:Class', got 'pkg.Model'\n"
        "    hint: did you mean 'pkg:Model'?\n"
        "1 bundle checked, 1 failed: 2 errors, 0 warnings, 0 notes\n"
    )
    assert result.exit_code == 1


def test_a_folder_of_bundles_and_what_of_them_to_show(bundles):
    result = run("bundles", "--ignore", "TB213,tb602")
    assert result.stdout.splitlines()[-1] == "3 bundles checked, 2 passed and 1 failed: 2 errors, 1 warning, 0 notes"
    assert result.exit_code == 1
    result = run("bundles", "--select", "TB218", "--ignore", "TB3")
    assert [line.split(": ")[1].split()[1] for line in result.stdout.splitlines() if "TB" in line] == ["TB218"]
    assert result.exit_code == 0


def test_strict_fails_on_warnings(bundles):
    assert run("bundles/odd").exit_code == 0
    result = run("bundles/odd", "--strict")
    assert result.stdout.splitlines()[-1].startswith("1 bundle checked, 1 failed: 0 errors, 1 warning, ")
    assert result.exit_code == 1
    assert run("bundles/good", "--strict").exit_code == 0


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_one_document(bundles, arguments):
    result = run("bundles/bad", "bundles/good", *arguments)
    document = json.loads(result.stdout)
    assert document["bundles"] == [{"path": "bundles/bad", "ok": False}, {"path": "bundles/good", "ok": True}]
    assert document["findings"][1] == {
        "code": "TB206",
        "severity": "error",
        "path": "bundles/bad/vllm_metadata.json",
        "line": 3,
        "column": 3,
        "message": "'main_class' must look like 'module:Class', got 'pkg.Model'",
        "hint": "did you mean 'pkg:Model'?",
    }
    counts = {"bundles": 2, "passed": 1, "failed": 1, "errors": 2, "warnings": 0, "notes": 2}
    assert (document["summary"], document["fixed"]) == (counts, [])
    assert (document["ok"], document["command"], document["error"], result.exit_code) == (False, "validate", None, 1)


def test_annotations(bundles):
    result = run(str(bundles / "bad"), "bundles/odd", "--format", "github", "--ignore", "TB602")
    bad, odd = "file=bundles/bad/vllm_metadata.json", "file=bundles/odd/vllm_metadata.json"
    like = "'main_class' must look like 'module:Class', got 'pkg.Model'%0Ahint: did you mean 'pkg:Model'?"
    mesh = f"unknown mesh device 'N1'; known: {', '.join(MESH_GRIDS)}%0Ahint: did you mean 'N150'?"
    assert result.stdout.splitlines() == [
        f"::error {bad},line=2,col=3,title=TB203::'arch' must be a Python identifier: 'a b'",
        f"::error {bad},line=3,col=3,title=TB206::{like}",
        f"::warning {odd},line=1,col=61,title=TB218::{mesh}",
        f"::notice {odd},title=TB213::{NO_LAUNCH}",
    ]


def test_annotations_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b:100%").mkdir()
    (line,) = run("a,b:100%", "--format", "github", "--select", "TB004").stdout.splitlines()
    assert line.startswith("::error file=a%2Cb%3A100%25/vllm_metadata.json,title=TB004::no vllm_metadata.json in")


def test_the_environments_bundles(bundles):
    result = run("--all", EXTRA_MODELS_DIR=str(bundles))
    assert result.stdout.splitlines()[-1].startswith("3 bundles checked, 2 passed and 1 failed:")
    result = run("--all")
    assert result.exit_code == 2
    assert result.stderr == (
        "tt-bundle: error: Name a bundle's folder, a folder of bundles, or use --all for those in EXTRA_MODELS_DIR "
        "(which is not set).\n"
    )


def test_all_takes_a_bundle_for_a_mistake(bundles):
    result = run("--all", "bundles/good")
    assert "error TB003 EXTRA_MODELS_DIR=" in result.stdout
    assert result.exit_code == 1


def test_what_cannot_be_read(bundles):
    result = run("nowhere", "bundles/bad")
    assert result.stdout.startswith("nowhere: error TB001 nowhere is not a directory\n")
    assert result.exit_code == 4


def test_misuse():
    result = run("--select", "TB2,QQ", ".")
    assert result.exit_code == 2
    assert "no code begins with 'QQ'; 'tt-bundle explain' lists them." in result.stderr


def test_a_mark_is_fixed(bundles):
    path = bundles / "good/vllm_metadata.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run("bundles/good", "--strict").exit_code == 1
    result = run("bundles/good", "--strict", "--fix")
    assert result.stderr == "removed the byte-order mark of bundles/good/vllm_metadata.json\n"
    assert result.exit_code == 0
    assert json.loads(run("bundles/good", "--fix", "--json").stdout)["fixed"] == []


def test_an_import(bundles):
    (bundles / "good/adapter.py").write_text("raise RuntimeError('not today')\n" + ADAPTER)
    assert run("bundles/good").exit_code == 0
    result = run("bundles/good", "--import", "--select", "TB3")
    assert result.stdout.splitlines()[0] == (
        "bundles/good/adapter.py:1: error TB310 import fails: RuntimeError: not today"
    )
    assert result.exit_code == 1


def test_names_that_do_not_print(bundles):
    (bundles / "bad").rename(bundles / "two\nlines\x1b[31m")
    lines = run(str(bundles / "two\nlines\x1b[31m")).stdout.splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)


def test_it_stays_light(bundles):
    code = (
        "from vllm_tt.cli import main; import sys\n"
        "try: main(['validate', 'bundles/odd'])\n"
        "except SystemExit as end: print(end.code, file=sys.stderr)\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "0\n[]\n"
