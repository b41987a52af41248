from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_tt.demo.server import Launch, Server, ServerFailed, free_port

pytestmark = pytest.mark.usefixtures("fake_vllm")


def launch(tmp_path: Path, mode: str = "", **settings: object) -> Launch:
    return Launch(model="m", log=tmp_path / "logs" / "server.log", environ={"FAKE_VLLM": mode}, **settings)


def child_of(log: Path) -> int:
    """The process that the fake server has started."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if log.exists() and (found := re.search(r"^child (\d+)$", log.read_text(), re.MULTILINE)):
            return int(found[1])
        time.sleep(0.05)
    raise TimeoutError(log)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running(pid)


def test_it_becomes_healthy_and_leaves_nothing_behind(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    with Server(launch(tmp_path, arguments=("--dtype", "float32"))) as server:
        seconds = server.wait_healthy(timeout=30, progress=lambda *args: told.append(args))
        assert server.url == f"http://127.0.0.1:{server.port}"
        child = child_of(server.launch.log)
        assert running(child)
    assert 0.5 < seconds < 30
    assert told[-1][1] == f"child {child}"
    assert gone(child)
    assert gone(server.process.pid)
    assert server.process.returncode == 0
    arguments = f"arguments serve m --host 127.0.0.1 --port {server.port} --dtype float32"
    assert arguments in server.launch.log.read_text()


def test_progress_shows_messages_without_their_prefix(tmp_path: Path) -> None:
    told: list[str] = []
    with Server(launch(tmp_path, "never")) as server:
        child_of(server.launch.log)
        log = server.launch.log
        log.write_text("(APIServer pid=1) INFO 11-30 16:38:09 [api.py:7] \x1b[32mLoading weights\x1b[0m\n\n")
        with pytest.raises(ServerFailed):
            server.wait_healthy(timeout=0.3, progress=lambda _seconds, message: told.append(message))
    assert set(told) == {"Loading weights"}


def test_its_environment_serves_the_shipped_bundles_on_the_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_MODEL", "another")
    monkeypatch.setenv("VLLM_PLUGINS", "none")
    environment = launch(tmp_path, mesh="T3K").environment()
    assert environment["TT_EMULATE"] == environment["MESH_DEVICE"] == "T3K"
    assert environment["TT_VLLM_BUILTIN_MODELS"] == "0"
    assert (Path(environment["EXTRA_MODELS_DIR"]) / "llama-host" / "vllm_metadata.json").is_file()
    assert environment["FAKE_VLLM"] == ""
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["PATH"] == os.environ["PATH"]
    assert not {"HF_MODEL", "VLLM_PLUGINS"} & environment.keys()


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    server = Server(launch(tmp_path, "broken", port=free_port()))
    with pytest.raises(ServerFailed) as caught:
        server.wait_healthy(timeout=30)
    message = re.sub(r"after \d+ s", "after N s", str(caught.value))
    assert message == (
        f"The server ended with exit code 3 after N s. The end of its log, {tmp_path}/logs/server.log:\n"
        "(APIServer pid=1) INFO 11-30 16:38:09 [api.py:7] arguments serve m --host 127.0.0.1 "
        f"--port {server.port}\nValueError: no such model"
    )


def test_a_server_that_never_becomes_healthy_is_ended(tmp_path: Path) -> None:
    server = Server(launch(tmp_path, "never"))
    child = child_of(server.launch.log)
    with pytest.raises(ServerFailed, match=r"^The server was not healthy after 1 s\."):
        server.wait_healthy(timeout=1)
    assert gone(child)
    assert gone(server.process.pid)


def test_a_server_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    server = Server(launch(tmp_path, "deaf"))
    server.wait_healthy(timeout=30)
    child = child_of(server.launch.log)
    started = time.monotonic()
    assert server.stop(grace=0.5) == -signal.SIGKILL
    assert time.monotonic() - started < 5
    assert gone(child)
    assert server.stop() == -signal.SIGKILL, "a second stop changes nothing"


@pytest.mark.parametrize("outlive", [False, True])
def test_a_server_ends_with_a_killed_parent_unless_it_shall_outlive_it(tmp_path: Path, outlive: bool) -> None:
    code = (
        "import pathlib, time\n"
        "from vllm_tt.demo.server import Launch, Server\n"
        f"Server(Launch(model='m', log=pathlib.Path({str(tmp_path / 'log')!r}), outlive={outlive})).wait_healthy()\n"
        "print('healthy', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout
    assert parent.stdout.readline() == b"healthy\n"
    child = child_of(tmp_path / "log")
    server = os.getpgid(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    if outlive:
        time.sleep(0.3)
        assert running(server)
        os.killpg(server, signal.SIGKILL)
    assert gone(server)
    if running(child):
        os.kill(child, signal.SIGKILL)
