"""pack, unpack, verify, lock, inspect, diff and rm, as they are called."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from archives import METADATA, archive, bundle, everything_below, member
from click.testing import CliRunner

from vllm_tt import __version__
from vllm_tt.bundle.files import select
from vllm_tt.bundle.lock import make
from vllm_tt.cli import main

TOKEN = "hf_" + "a1B2" * 9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "mine"
    place.mkdir()
    text = {**json.loads(METADATA), "name": "nice", "version": "1.0"}
    (place / "vllm_metadata.json").write_text(json.dumps(text))
    (place / "adapter.py").write_text("class Model:\n    def prefill_forward(self, tokens): ...\n")
    monkeypatch.chdir(tmp_path)
    return place


def run(*arguments, **options):
    env = {"EXTRA_MODELS_DIR": None, **options.pop("env", {})}
    result = CliRunner(env=env).invoke(main, [str(one) for one in arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def document(result):
    """The one document on stdout."""
    found = json.loads(result.stdout)
    assert found["version"] == __version__
    assert found["ok"] is (result.exit_code == 0)
    return found


def tree(folder):
    return make(select(folder)).tree_sha256


def test_pack(folder, tmp_path):
    result = run("pack", "mine")
    data = (tmp_path / "nice-1.0.tar.gz").read_bytes()
    size = sum(file.size for file in select(folder).files)
    assert result.stdout == (
        f"packed 2 files ({size} bytes) into nice-1.0.tar.gz ({len(data)} bytes)\n"
        f"archive:  sha256 {hashlib.sha256(data).hexdigest()}\n"
        f"contents: sha256 {tree(folder)}\n"
    )
    assert (result.stderr, result.exit_code) == ("", 0)


def test_pack_to_stdout(folder, tmp_path):
    result = run("pack", "mine", "-o", "-")
    run("pack", "mine", "-o", "out.tar.gz")
    assert result.stdout_bytes == (tmp_path / "out.tar.gz").read_bytes()
    assert result.stderr.splitlines()[0].startswith("packed 2 files (")
    assert result.stderr.splitlines()[-1] == f"contents: sha256 {tree(folder)}"


def test_stdout_is_for_one_thing(folder):
    result = run("pack", "mine", "-o", "-", "--json")
    assert result.exit_code == 2
    assert document(result)["error"] == {
        "code": 2,
        "message": "--json and -o - both want stdout: name a file with -o.",
    }


def test_pack_plans(folder, tmp_path):
    (folder / "notes.log").write_text("x")
    result = run("pack", "mine", "--dry-run", "--exclude", "*.log")
    sizes = {file.path: file.size for file in select(folder).files}
    assert result.stdout == (
        f"would pack 2 files ({sizes['adapter.py'] + sizes['vllm_metadata.json']} bytes) into nice-1.0.tar.gz:\n"
        f"  + adapter.py ({sizes['adapter.py']} bytes)\n"
        f"  + vllm_metadata.json ({sizes['vllm_metadata.json']} bytes)\n"
        "  - 'notes.log' (left out)\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    planned = document(run("pack", "mine", "--dry-run", "--exclude", "*.log", "--json"))
    assert (planned["archive"], planned["dry_run"], planned["left_out"]) == (None, True, ["notes.log"])


def test_what_must_not_be_packed(folder, tmp_path):
    (folder / ".env").write_text(f"HF_TOKEN={TOKEN}")
    (folder / "settings.py").write_text(f"\nTOKEN = '{TOKEN}'\n")
    (folder / "model.safetensors").write_bytes(bytes(1500))
    (folder / "outside").symlink_to("/etc/hostname")
    result = run("pack", "mine")
    assert result.stdout == "not packed: 4 errors\n"
    assert result.stderr == (
        "mine: error TB804 weights: 'model.safetensors' (1.5 kB)\n"
        "    hint: --include-weights ships it; name the weights in 'hf_weights' to have them loaded from the Hub\n"
        "mine: error TB802 'outside' -> '/etc/hostname' leaves the bundle\n"
        "    hint: --dereference ships a copy of the file\n"
        "mine: error TB805 '.env' looks like a secret\n"
        "    hint: if it may be published: --allow-secret '.env'\n"
        "mine: error TB806 settings.py:2: looks like a Hugging Face token\n"
        "    hint: if it may be published: --allow-secret 'settings.py'\n"
    )
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    refused = run("pack", "mine", "--json")
    assert [(one["code"], one["path"]) for one in document(refused)["findings"]] == [
        ("TB804", "mine"),
        ("TB802", "mine"),
        ("TB805", "mine"),
        ("TB806", "mine/settings.py"),
    ]
    allowed = ["--include-weights", "--allow-secret", ".env", "--allow-secret", "settings.py", "--dereference"]
    done = run("pack", "mine", *allowed)
    assert done.exit_code == 0
    assert TOKEN not in result.output + refused.output + done.output


@pytest.mark.parametrize("size", ["1k", "0.5M", "x", "0", "-1"])
def test_sizes(folder, size):
    (folder / "text.txt").write_text("x" * 2000)
    result = run("pack", "mine", "--max-size", size)
    if size == "1k":
        assert (result.exit_code, result.stdout) == (1, "not packed: 1 error\n")
    else:
        assert result.exit_code == 2
        assert f"'{size}' is no size. Examples: 4096, 512M, 2G." in result.stderr


def test_outputs_that_are_refused(folder, tmp_path):
    result = run("pack", "mine", "-o", "mine/out.tar.gz")
    assert result.exit_code == 2
    assert result.stderr == (
        "tt-bundle: error: The output mine/out.tar.gz would be inside the bundle. "
        f"Name a place outside of {folder} with -o.\n"
    )
    (tmp_path / "notes").write_text("mine")
    result = run("pack", "mine", "-o", "notes", "--json")
    assert result.exit_code == 4
    assert document(result)["error"] == {"code": 4, "message": "'notes' exists; use --force to replace it"}
    assert run("pack", "mine", "-o", "notes", "--force").exit_code == 0


def test_unpack(folder, tmp_path):
    run("pack", "mine")
    result = run("unpack", "nice-1.0.tar.gz", "--into", "bundles")
    size = sum(file.size for file in select(folder).files)
    assert result.stdout == (
        f"unpacked 2 files ({size} bytes) into {tmp_path}/bundles/nice\ncontents: sha256 {tree(folder)} (as locked)\n"
    )
    assert (result.stderr, result.exit_code) == ("", 0)
    again = run("unpack", "nice-1.0.tar.gz", "--into", "bundles")
    assert (again.exit_code, again.stdout) == (4, "")
    assert again.stderr == "tt-bundle: error: 'nice' exists; use --force to replace it\n"
    assert run("unpack", "nice-1.0.tar.gz", "--into", "bundles", "--force").exit_code == 0
    assert run("unpack", "nice-1.0.tar.gz", "--into", "bundles", "--name", "other").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "bundles").iterdir()) == ["nice", "other"]


def test_unpack_into_the_folder_of_bundles(folder, tmp_path):
    run("pack", "mine")
    result = run("unpack", "nice-1.0.tar.gz", "--json", env={"EXTRA_MODELS_DIR": str(tmp_path / "bundles")})
    assert document(result) == {
        "ok": True,
        "command": "unpack",
        "version": __version__,
        "folder": f"{tmp_path}/bundles/nice",
        "name": "nice",
        "tree_sha256": tree(folder),
        "findings": [],
        "summary": {"files": 2, "size": sum(file.size for file in select(folder).files)},
        "error": None,
    }


def test_unpack_from_stdin(folder, tmp_path):
    run("pack", "mine")
    data = (tmp_path / "nice-1.0.tar.gz").read_bytes()
    assert run("unpack", "-", "--into", "x", input=data).exit_code == 0
    assert (tmp_path / "x" / "nice" / "bundle.lock.json").exists()
    assert run("verify", "-", input=data).stdout.startswith("stdin: good (2 files, ")


HOSTILE = {
    "path": bundle(member("mine/../../evil.py", b"evil")),
    "link": bundle(member("mine/sub", type=b"2", linkname="/etc"), member("mine/sub/evil.py", b"evil")),
    "twice": bundle(member("mine/adapter.py", b"evil")),
    "junk": b"\x1f\x8b junk",
    "no bundle": archive(member("x", b"evil")),
    "lock": bundle(member("mine/bundle.lock.json", b"{}")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives(tmp_path, kind):
    file = tmp_path / "evil.tar.gz"
    file.write_bytes(HOSTILE[kind])
    before = everything_below(tmp_path)
    result = run("unpack", file, "--into", tmp_path / "new", "--json")
    assert result.exit_code == 1
    found = document(result)
    assert (found["folder"], found["error"], result.stderr) == (None, None, "")
    assert [one["path"] for one in found["findings"]] == ["evil.tar.gz"]
    assert everything_below(tmp_path) == before
    lines = run("unpack", file, "--into", tmp_path / "new")
    assert lines.stdout == "not unpacked: 1 error in evil.tar.gz; nothing was written\n"
    assert lines.stderr == f"evil.tar.gz: error {found['findings'][0]['code']} {found['findings'][0]['message']}\n"
    assert run("verify", file).exit_code == 1
    assert run("verify", file).stdout == f"{file}: bad (1 error)\n"


def test_verify(folder):
    run("pack", "mine")
    result = run("verify", "nice-1.0.tar.gz", "--require-lock")
    size = sum(file.size for file in select(folder).files)
    assert result.stdout == f"nice-1.0.tar.gz: good (2 files, {size} bytes)\ncontents: sha256 {tree(folder)}\n"
    assert result.exit_code == 0
    assert run("verify", "mine").stdout == "mine: not verified, for it has no lock\n"
    assert run("verify", "mine").stderr == "mine: warning TB911 no bundle.lock.json: contents not verified\n"
    assert run("verify", "mine", "--require-lock").exit_code == 1


def test_verify_an_installed_bundle(folder, tmp_path):
    run("pack", "mine")
    run("unpack", "nice-1.0.tar.gz", "--into", "bundles")
    (tmp_path / "bundles" / "nice" / "torch.py").touch()
    result = run("verify", "bundles/nice")
    assert result.stdout == "bundles/nice: bad (1 error)\n"
    assert result.stderr == "bundles/nice: error TB909 'torch.py' is not in bundle.lock.json\n"
    assert result.exit_code == 1


def test_lock(folder):
    size = sum(file.size for file in select(folder).files)
    missing = run("lock", "mine", "--check")
    assert missing.stderr == "mine: error TB911 no bundle.lock.json: contents not verified\n"
    assert missing.exit_code == 1
    result = run("lock", "mine")
    assert result.stdout == (f"locked 2 files ({size} bytes): mine/bundle.lock.json\ncontents: sha256 {tree(folder)}\n")
    assert run("verify", "mine", "--strict", "--require-lock").exit_code == 0
    assert run("lock", "mine", "--check").stdout.startswith(f"good lock of 2 files ({size} bytes): mine/bundle.")
    (folder / "more.py").touch()
    stale = run("lock", "mine", "--check", "--json")
    assert stale.exit_code == 1
    assert [(one["code"], one["message"]) for one in document(stale)["findings"]] == [
        ("TB817", f"bundle.lock.json is stale: 'tt-bundle lock {folder}' makes it anew")
    ]


def test_lock_refuses_what_pack_refuses(folder):
    (folder / ".env").touch()
    result = run("lock", "mine")
    assert (result.stdout, result.exit_code) == ("not locked: 1 error\n", 1)
    assert not (folder / "bundle.lock.json").exists()


def test_inspect(folder):
    contents = make(select(folder))
    size = sum(file.size for file in contents.files)
    result = run("inspect", "mine", "--files")
    assert result.stdout == (
        "mine\n"
        "  name          nice 1.0\n"
        "  arch          LlamaForCausalLM (registered as TTLlamaForCausalLM)\n"
        "  class         adapter:Model\n"
        "  adapter       adapter.py:1\n"
        "  capabilities  none declared\n"
        "  method        prefill_forward(tokens)\n"
        f"  contents      2 files, {size} bytes, sha256 {contents.tree_sha256}\n"
        "  lock          none\n"
        f"  {contents.files[0].sha256}      {contents.files[0].size} bytes  adapter.py\n"
        f"  {contents.files[1].sha256}      {contents.files[1].size} bytes  vllm_metadata.json\n"
    )
    run("pack", "mine")
    lines = run("inspect", "nice-1.0.tar.gz").stdout.splitlines()
    assert lines[0] == "nice-1.0.tar.gz"
    assert lines[-1] == "  lock          matches the contents"
    found = document(run("inspect", "nice-1.0.tar.gz", "--json"))
    assert found["bundles"][0]["adapter"]["methods"] == {"prefill_forward": "(tokens)"}
    assert (found["tree_sha256"], found["lock"], found["manifest"]) == (contents.tree_sha256, "matches", None)


def test_inspect_a_package_of_tt_model(tmp_path):
    manifest = {
        "schema_version": "5.1",
        "name": "llama\x1b[31m",
        "arch": "wormhole_b0",
        "files": [{"path": "x", "sha256": "0", "size": 1}],
        "bundled": {"metal_dir": "metal", "python": None},
    }
    (tmp_path / "tt_kernel_manifest.json").write_text(json.dumps(manifest))
    for name in ("a", "b"):
        (tmp_path / "vllm_models" / name).mkdir(parents=True)
        (tmp_path / "vllm_models" / name / "vllm_metadata.json").write_bytes(METADATA)
    result = run("inspect", tmp_path)
    lines = result.stdout.splitlines()
    assert lines[0] == f"{tmp_path} (vllm_models with code at the root)"
    assert [line.split()[1] for line in lines if line.startswith("  bundle ")] == ["a", "b"]
    assert lines[-6:] == [
        "  tt_kernel_manifest.json",
        "    schema_version     5.1",
        r"    name               'llama\x1b[31m'",
        "    arch               wormhole_b0",
        "    files              1 entries",
        "    bundled.metal_dir  metal",
    ]
    assert document(run("inspect", tmp_path, "--json"))["manifest"] == manifest


def test_inspect_what_is_broken(folder, tmp_path):
    (folder / "vllm_metadata.json").write_text("[]")
    result = run("inspect", "mine")
    assert (result.exit_code, result.stderr) == (1, "mine: error TB105 must be a JSON object, got a list\n")
    (tmp_path / "x.tar.gz").write_text("junk")
    result = run("inspect", "x.tar.gz", "--json")
    message = "not a bundle archive (not gzip; expected a gzip-compressed tar)"
    assert [one["message"] for one in document(result)["findings"]] == [message]
    assert run("inspect", "x.tar.gz").stderr == f"x.tar.gz: error TB906 {message}\n"
    (tmp_path / "empty").mkdir()
    result = run("inspect", "empty")
    assert result.exit_code == 1
    assert result.stderr.startswith("tt-bundle: error: no bundle found in empty (looked for vllm_metadata.json at")


def test_diff(folder, tmp_path):
    run("pack", "mine")
    same = run("diff", "mine", "nice-1.0.tar.gz")
    assert (same.stdout, same.exit_code) == ("no difference\n", 0)
    (folder / "adapter.py").write_text(
        "class Model:\n    model_capabilities = {'supports_async_decode': True}\n"
        "    def prefill_forward(self, tokens, *, page_table): ...\n"
    )
    metadata = json.loads((folder / "vllm_metadata.json").read_text())
    (folder / "vllm_metadata.json").write_text(json.dumps({**metadata, "version": "1.1", "license": "MIT"}))
    (folder / "new.py").touch()
    result = run("diff", "nice-1.0.tar.gz", "mine")
    lines = result.stdout.splitlines()
    assert lines[:8] == [
        "metadata:",
        "  + license: MIT",
        "  ~ version: 1.0 -> 1.1",
        "capabilities:",
        "  + supports_async_decode: true",
        "signatures:",
        "  ~ prefill_forward: (tokens) -> (tokens, *, page_table)",
        "files:",
    ]
    assert [line.split(":")[0] for line in lines[8:]] == ["  ~ adapter.py", "  + new.py", "  ~ vllm_metadata.json"]
    assert result.exit_code == 1
    found = document(run("diff", "nice-1.0.tar.gz", "mine", "--json"))
    assert found["summary"] == {"metadata": 2, "capabilities": 1, "signatures": 1, "files": 3}
    assert found["changes"][1] == {"section": "metadata", "name": "version", "before": "1.0", "after": "1.1"}
    (tmp_path / "x").write_text("junk")
    assert run("diff", "mine", "x").stderr.startswith("x: error TB906 not a bundle archive (not gzip; ")


def test_rm(folder, tmp_path):
    (tmp_path / "linked").symlink_to(folder)
    asked = run("rm", "mine", "--dir", tmp_path)
    assert asked.exit_code == 2
    assert asked.stderr == (
        "tt-bundle: error: Nothing was removed: add --yes to remove 1 bundle where nobody can be asked.\n"
    )
    unknown = run("rm", "mine", "mime", "--yes", "--dir", tmp_path)
    assert unknown.exit_code == 2
    assert unknown.stderr == (f"tt-bundle: error: There is no bundle 'mime' in {tmp_path}. Did you mean mine?\n")
    assert folder.exists()
    link = run("rm", "linked", "--yes", env={"EXTRA_MODELS_DIR": str(tmp_path)})
    assert link.stdout == f"removed {tmp_path}/linked\n"
    result = run("rm", "mine", "--yes", "--dir", tmp_path, "--json")
    assert document(result)["removed"] == [str(folder)]
    assert list(tmp_path.iterdir()) == []


def test_rm_needs_a_place():
    result = run("rm", "mine", "--yes")
    assert result.stderr == (
        "tt-bundle: error: EXTRA_MODELS_DIR is not set: name the folder of bundle folders with --dir.\n"
    )
    assert result.exit_code == 2


@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "lock", "inspect", "diff", "rm"])
def test_misuse_is_a_document(command):
    result = run(command, "--json", "--no-such-option")
    assert (result.exit_code, document(result)["error"]["code"]) == (2, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(folder, tmp_path, number):
    """A signal in the middle leaves the old bundle, and nothing beside it."""
    run("pack", "mine")
    run("unpack", "nice-1.0.tar.gz", "--into", "bundles")
    before = everything_below(tmp_path / "bundles")
    code = "import sys; from vllm_tt.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "unpack", "-", "--into", "bundles", "--force"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        process.stdin.write((tmp_path / "nice-1.0.tar.gz").read_bytes()[:200])
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "bundles").iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, number)
        stderr = process.stderr.read()
        assert (process.wait(60), stderr) == (130, b"tt-bundle: error: interrupted\n")
    assert everything_below(tmp_path / "bundles") == before


def test_no_space(folder, tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vllm_tt.bundle.compression.Compressor.write", full)
    result = run("pack", "mine")
    assert (result.exit_code, result.stderr) == (4, "tt-bundle: error: [Errno 28] No space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_reader_that_goes_away_is_no_error(folder, tmp_path):
    (folder / "big.txt").write_bytes(os.urandom(1 << 20))
    code = "import sys; from vllm_tt.cli import main; main(['pack', 'mine', '-o', '-'])"
    done = subprocess.run(
        f"{sys.executable} -c \"{code}\" | head -c 10 > /dev/null",
        shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""


def test_progress_without_a_terminal_is_lines(folder, monkeypatch):
    """Where a tenth takes a second; here every moment counts as one."""
    monkeypatch.setattr("vllm_tt.cli.progress._SECONDS", 0)
    (folder / "big.bin").write_bytes(bytes(4 << 20))
    lines = run("pack", "mine").stderr.splitlines()
    assert lines[-1].startswith("Packing mine: 100 % of 4.2 MB")
    assert all(line.startswith("Packing mine: ") for line in lines)
    assert run("pack", "mine", "--no-progress").stderr == ""
    assert run("pack", "mine", "--json").stderr == ""


def test_two_processes_on_different_machines_write_the_same_bytes(folder, tmp_path):
    """Another time zone, umask, order of hashing, folder name and date of the files."""
    (folder / "sub").mkdir()
    (folder / "sub" / "é.py").write_text("x = 1\n")
    code = "import os, sys; os.umask(int(sys.argv[1], 8)); from vllm_tt.cli import main; main(sys.argv[2:])"

    def pack(umask, folder, out, **env):
        command = [sys.executable, "-c", code, umask, "pack", folder, "-o", out]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **env}, check=True, capture_output=True, timeout=60)
        return (tmp_path / out).read_bytes()

    first = pack("022", "mine", "first", TZ="UTC", PYTHONHASHSEED="1", LC_ALL="C")
    folder.rename(tmp_path / "renamed")
    for file in (tmp_path / "renamed").rglob("*.py"):
        os.utime(file, (10**9, 10**9))
    second = pack("077", "renamed", "second", TZ="Asia/Tokyo", PYTHONHASHSEED="2", SOURCE_DATE_EPOCH="1")
    assert first == second


def test_the_commands_load_nothing_heavy():
    names = ["pack", "unpack", "verify", "lock", "inspect", "diff", "rm"]
    heavy = ("huggingface_hub", "jsonschema", "numpy", "rich", "tarfile", "torch", "vllm")
    code = f"import sys\nfor name in {names}: __import__('vllm_tt.cli.' + name)\n"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
