import importlib
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from vllm_tt import __version__
from vllm_tt.cli import main
from vllm_tt.cli.group import COMMANDS

HEAVY = ("huggingface_hub", "jsonschema", "numpy", "rich", "torch", "transformers", "ttnn", "vllm")


def run(*arguments, env=None):
    return CliRunner(env={"EXTRA_MODELS_DIR": None, **(env or {})}).invoke(main, list(arguments))


@pytest.mark.parametrize(
    "code",
    [
        "import vllm_tt",
        "import vllm_tt.entrypoints",
        "from vllm_tt.bundle import discover, parse; discover('/nowhere')",
        "from vllm_tt.cli import main; main(['--help'], standalone_mode=False)",
        "from vllm_tt.cli import main; main(['list', '--builtin'], standalone_mode=False)",
        "from vllm_tt.cli import main; main(['schema'], standalone_mode=False)",
    ],
)
def test_light_things_stay_light(code):
    report = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "[]\n"


def test_the_help_needs_no_commands_module():
    code = (
        "import sys\nfrom vllm_tt.cli import main\nmain(['--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith(('vllm_tt.bundle', 'vllm_tt.models', 'vllm_tt.demo'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert line in " ".join(done.stdout.split())


def test_the_bundle_library_works_where_nothing_heavy_is_installed():
    code = (
        f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n"
        "import vllm_tt.bundle, vllm_tt.bundle.schema, vllm_tt.models.resolve\n"
        "print(len(vllm_tt.models.resolve.resolve({}).entries))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 15


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_table_says(name):
    module, line = COMMANDS[name]
    command = importlib.import_module(module).command
    assert command.name == name
    assert line.endswith(".")


def test_version():
    assert run("--version").output == f"tt-bundle, version {__version__}\n"


def test_an_unknown_command_is_misuse():
    result = run("lst")
    assert result.exit_code == 2
    assert "No such command 'lst'." in result.stderr


@pytest.mark.parametrize("arguments", [["--json", "list", "--no-such"], ["list", "--json", "--no-such"]])
def test_misuse_is_a_document_too(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "ok": False,
        "command": "list",
        "version": __version__,
        "error": {"code": 2, "message": "No such option '--no-such'."},
    }


def test_an_error_is_one_line_and_a_code():
    result = run("list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "tt-bundle: error: EXTRA_MODELS_DIR is not set: name a folder of bundle folders with --dir, or use --builtin.\n"
    )


def test_debug_shows_the_traceback():
    result = run("--debug", "list")
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ("KeyboardInterrupt", 130, "interrupted"),
        ("FileNotFoundError(2, 'No such file', 'x')", 4, "[Errno 2] No such file: 'x'"),
        ("TTError(message='two\\nlines')", 1, "two lines"),
    ],
)
def test_errors_of_a_command_become_exit_codes(error, code, line, tmp_path, monkeypatch):
    (tmp_path / "failing_command.py").write_text(
        f"import click\nfrom vllm_tt.errors import TTError\n@click.command('fail')\ndef command():\n    raise {error}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_command", raising=False)
    monkeypatch.setitem(COMMANDS, "fail", ("failing_command", "Fails."))
    result = run("fail")
    assert (result.exit_code, result.stderr) == (code, f"tt-bundle: error: {line}\n")
