from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from vllm_tt.cli import main
from vllm_tt.demo.checkpoint import prepare

DEMO = [sys.executable, "-c", "import sys; from vllm_tt.cli import main; main(['demo', *sys.argv[1:]])"]

pytestmark = pytest.mark.usefixtures("fake_vllm", "shipped")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TT_VLLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_answer_and_its_timing_are_printed(cache: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--question", "Why?", "--max-tokens", "7", "--mesh", "T3K"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "You said: Why?"
    assert lines[2].startswith("Healthy after ")
    assert lines[2].endswith(" tokens/s.")
    assert result.stderr.splitlines()[:2] == [
        "Writing the SmolLM2-135M-Instruct checkpoint, once.",
        "Starting `vllm serve` with SmolLM2-135M-Instruct on an emulated T3K.",
    ]


def test_json_is_one_document_and_a_kept_server_runs_on(cache: Path) -> None:
    prepare()
    command = [*DEMO, "--json", "--keep", "--max-tokens", "7"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    report = json.loads(result.stdout)
    os.killpg(report["server"]["pid"], signal.SIGKILL)
    assert report["ok"] is True
    assert report["command"] == "demo"
    assert report["answer"] == "You said: What is the capital of France?"
    assert report["timing"]["tokens"] == 7
    assert report["checkpoint"] == str(cache / "checkpoints" / "SmolLM2-135M-Instruct-bfloat16-1")
    assert report["server"]["url"] in report["server"]["curl"]


def test_a_server_that_fails_shows_the_end_of_its_log(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "broken")
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-2] == "ValueError: no such model"
    assert re.sub(r"after \d+ s", "after N s", result.stderr.splitlines()[-1]) == (
        f"tt-bundle: error: The demo's server ended with exit code 3 after N s. Its log is {cache}/logs/demo.log; "
        "the end of it is above."
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_server(cache: Path, number: signal.Signals) -> None:
    prepare()
    demo = subprocess.Popen(DEMO, env=os.environ | {"FAKE_VLLM": "never"}, stderr=subprocess.PIPE, text=True)
    log = cache / "logs" / "demo.log"
    while not (log.exists() and "child" in log.read_text()):
        assert demo.poll() is None
        time.sleep(0.05)
    child = int(log.read_text().split("child ")[1])
    demo.send_signal(number)
    _, err = demo.communicate(timeout=20)
    assert err.splitlines()[-1] == "tt-bundle: error: interrupted"
    assert demo.returncode == 130
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
