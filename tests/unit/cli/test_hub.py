"""``push`` and ``pull``: what they print and how they end."""

import json
import re
import socket

import pytest
from click.testing import CliRunner
from fake_hub import FakeHub
from hub_cases import ADAPTER, METADATA, V5
from hub_process import TOKEN, confine, environment, run

from vllm_tt.cli import main


@pytest.fixture(scope="module")
def hub():
    with FakeHub(tokens=(TOKEN,)) as running:
        yield running


@pytest.fixture
def env(hub, tmp_path):
    hub.repos.clear()
    hub.faults.clear()
    return environment(hub.url, tmp_path)


@pytest.fixture
def command(env, monkeypatch, tmp_path):
    """The command in this process."""
    confine(monkeypatch, tmp_path)

    def invoke(*arguments, **more):
        kept = {name: value for name, value in {**env, **more}.items() if name.startswith(("HF_", "HOME"))}
        return CliRunner(env={"EXTRA_MODELS_DIR": None, **kept}).invoke(main, [*map(str, arguments)])

    return invoke


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    (place / "vllm_metadata.json").write_text(METADATA)
    (place / "adapter.py").write_text(ADAPTER)
    return place


def test_push_and_pull(hub, env, command, folder, tmp_path):
    done = run(["push", folder, "org/name", "--no-verify"], env)
    repo = hub.repos["org/name"]
    commit = repo.branches["main"]
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        rf"pushed to org/name \(private\), branch main, commit {commit} \(5 written, 0 removed, 1\.\d kB\)", lines[0]
    )
    assert lines[2] == f"Pull it: tt-bundle pull org/name@{commit[:12]}"

    done = run(["pull", f"org/name@{commit[:12]}"], env)
    into = tmp_path / ".cache" / "tt-model" / "bundles"
    size = sum(len(data) for path, data in repo.head().items() if path.startswith("vllm_bundle/"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"org/name at {commit[:12]} is commit {commit} (vllm_bundle)\n"
        f"installed org__name (3 files, {size} bytes): {into}/org__name\n"
        f"Serve it: EXTRA_MODELS_DIR={into} tt-bundle serve org__name\n"
    )
    document = json.loads(command("pull", "org/name", "--json").stdout)
    assert (document["ok"], document["commit"], document["bundles"][0]["status"]) == (True, commit, "up to date")


def test_validation_refuses_a_push(command, folder):
    done = command("push", folder, "org/name")
    assert done.exit_code == 1
    assert "mine: error TB401 adapter.py:1:1: Adapter lacks 'initialize_vllm_model'\n" in done.stderr
    last = "tt-bundle: error: mine was not pushed: adapter.py:1:1: Adapter lacks"
    assert done.stderr.splitlines()[-1].startswith(last)
    done = command("push", folder, "org/name", "--json")
    document = json.loads(done.stdout)
    found = [one for one in document["findings"] if one["code"] == "TB401"]
    assert (done.exit_code, document["ok"], found[0]["path"]) == (1, False, "mine/adapter.py")
    assert done.stderr == ""


def test_a_dry_run(hub, command, folder, tmp_path):
    done = command("push", folder, "org/name", "--no-verify", "--dry-run", "--public")
    assert done.stdout.splitlines()[:-1] == [
        "would push to org/name (new, public), branch main:",
        "  + README.md",
        "  + tt_kernel_manifest.json",
        "  + vllm_bundle/adapter.py",
        "  + vllm_bundle/bundle.lock.json",
        "  + vllm_bundle/vllm_metadata.json",
    ]
    hub.add("org/name", V5)
    done = command("pull", "org/name", "--dry-run", "--into", tmp_path / "x")
    assert done.stdout.splitlines()[1:] == [f"would install org__name (3 files, 101 bytes): {tmp_path}/x/org__name"]
    assert done.stderr == (
        "org/name: note TB962 the repository has 'run.sh' and 'install.sh', which tt-bundle never runs\n"
    )


def test_nothing_to_push(command, folder):
    command("push", folder, "org/name", "--no-verify", "--create-pr")
    command("push", folder, "org/name", "--no-verify", "-m", "First")
    lines = command("push", folder, "org/name", "--no-verify", "--public").stdout.splitlines()
    assert lines[0].startswith("nothing to push: org/name (private) holds the bundle at commit ")
    assert lines[-1] == "The repository exists and stays private: its settings on the Hub change that."


def test_a_bundle_that_is_not_right(hub, command, tmp_path):
    hub.add("org/name", {"vllm_metadata.json": "[]"})
    done = command("pull", "org/name", "--into", tmp_path / "x")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "org__name: warning TB911 no bundle.lock.json: contents not verified\n"
        "org__name: error TB105 must be a JSON object, got a list\n"
        "tt-bundle: error: org/name was not installed: must be a JSON object, got a list\n"
    )
    document = json.loads(command("pull", "org/name", "--into", tmp_path / "x", "--json").stdout)
    assert [one["code"] for one in document["findings"]] == ["TB911", "TB105"]


def unused_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


FAILURES = {
    "no repository": ({}, ["pull", "noslash"], 2),
    "missing": ({}, ["pull", "org/none"], 3),
    "no token": ({"HF_TOKEN": ""}, ["pull", "org/none"], 3),
    "refused": ({"HF_ENDPOINT": unused_address}, ["pull", "org/none"], 3),
    "no address": ({"HF_ENDPOINT": "nowhere"}, ["pull", "org/none"], 2),
    "a wrong token": ({"HF_TOKEN": TOKEN + "x"}, ["--debug", "pull", "org/none"], 3),
}


@pytest.mark.parametrize(("more", "arguments", "code"), FAILURES.values(), ids=FAILURES)
def test_failures_end_with_their_code_and_never_show_the_token(command, more, arguments, code):
    done = command(*arguments, **{name: value() if callable(value) else value for name, value in more.items()})
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith("tt-bundle: error: ")
    assert TOKEN not in done.stderr


def test_the_environment_says_offline(env):
    done = run(["--debug", "pull", "org/none"], {**env, "HF_HUB_OFFLINE": "1"})
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == (
        f"tt-bundle: error: HF_HUB_OFFLINE is set, so {env['HF_ENDPOINT']} was not asked for org/none. "
        "Unset it to use the Hub."
    )
    assert TOKEN not in done.stderr


def test_what_exists_ends_with_4(hub, command, tmp_path):
    hub.add("org/name", {"vllm_metadata.json": METADATA, "adapter.py": ADAPTER})
    (tmp_path / "org__name").mkdir()
    done = command("pull", "org/name", "--into", tmp_path, "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["error"] == {"code": 4, "message": "'org__name' exists; use --force to replace it"}
