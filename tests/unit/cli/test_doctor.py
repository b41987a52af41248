import json
import subprocess
import sys

from click.testing import CliRunner

from vllm_tt.cli import main

HEAVY = ("vllm", "torch", "ttnn", "numpy", "transformers", "huggingface_hub")


def test_it_needs_nothing_heavy():
    code = (
        f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n"
        "from vllm_tt.cli import main\nmain(['doctor', '--json'], standalone_mode=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout)["command"] == "doctor"


def test_problems_and_their_remedies():
    result = CliRunner(env={"VLLM_PLUGINS": "other", "TT_EMULATE": "N300"}).invoke(main, ["doctor"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("problem  VLLM_PLUGINS"))
    assert lines[at + 1] == "         -> Add tt to the list, or unset the variable."
    assert lines[-1].startswith("1 problem, ")


def test_one_document():
    result = CliRunner(env={"VLLM_PLUGINS": None, "TT_EMULATE": "N300"}).invoke(main, ["doctor", "--json"])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"], document["summary"]["problems"]) == (0, True, 0)
    assert {"topic", "level", "found", "remedy"} == set(document["items"][0])
