"""``tt-bundle steps`` on logs as a server wrote them, and on what is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vllm_tt.cli import main

HERE = Path(__file__).parents[1] / "observe" / "recorded"
RECORDED = HERE / "steps.jsonl"


def run(*arguments):
    return CliRunner().invoke(main, ["steps", *map(str, arguments)])


def test_a_recorded_log():
    result = run(RECORDED)
    assert result.stdout == (HERE / "steps.txt").read_text()
    assert result.exit_code == 0


def test_a_recorded_log_as_json():
    result = run(RECORDED, "--json")
    document = json.loads(result.stdout)
    recorded = json.loads((HERE / "steps.json").read_text())
    assert {name: document[name] for name in ("ok", "figures", "remarks", "drawn")} == recorded


def test_the_older_half_is_read_first(tmp_path):
    lines = RECORDED.read_text().splitlines(keepends=True)
    (tmp_path / "steps.jsonl.1").write_text("".join(lines[:20]))
    (tmp_path / "steps.jsonl").write_text("".join(lines[20:]))
    assert run(tmp_path / "steps.jsonl").stdout == run(RECORDED).stdout


def test_engines_are_added(tmp_path):
    for engine in "01":
        (tmp_path / f"steps.jsonl.{engine}").write_text(RECORDED.read_text())
    figures = json.loads(run(tmp_path / "steps.jsonl.0", tmp_path / "steps.jsonl.1", "--json").stdout)["figures"]
    one = json.loads(run(RECORDED, "--json").stdout)["figures"]
    assert figures["engines"] == 2
    assert figures["decode"]["tokens"] == 2 * one["decode"]["tokens"]
    assert figures["span_s"] == one["span_s"]
    assert figures["lane_rows"] == one["lane_rows"] * 2


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "it is empty"), ("\n", "it is empty"), ("INFO started\nINFO ended\n", "2 lines of something else")],
    ids=["empty", "blank", "another log"],
)
def test_a_file_without_steps(tmp_path, text, found):
    path = tmp_path / "steps.jsonl"
    path.write_text(text)
    result = run(path)
    assert result.stderr == (
        f"tt-bundle: error: {path} has no steps ({found}): serve with --additional-config.tt.step_log FILE, send "
        "requests, and name that file.\n"
    )
    assert result.exit_code == 1


def test_pages_and_pictures_are_written_where_they_can_be(tmp_path):
    page, picture = tmp_path / "steps.html", tmp_path / "steps.png"
    result = run(RECORDED, "--html", page, "--png", picture)
    assert result.stdout.splitlines()[-2:] == [f"drawn: {page}", f"drawn: {picture}"]
    assert page.stat().st_size < 60_000
    assert picture.read_bytes()[:4] == b"\x89PNG"
    nowhere = tmp_path / "none" / "steps.html"
    result = run(RECORDED, "--html", nowhere)
    assert (result.exit_code, result.stderr) == (
        4,
        f"tt-bundle: error: [Errno 2] No such file or directory: '{nowhere}'\n",
    )


def test_neither_vllm_nor_torch_is_loaded(tmp_path):
    code = (
        "import sys; from vllm_tt.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "sys.exit(str({'vllm', 'torch', 'ttnn'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, "steps", str(RECORDED), "--html", str(tmp_path / "steps.html")]
    ended = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert ended.stderr == "set()\n"
