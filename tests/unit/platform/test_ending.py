"""What a server's process says and returns at its end; each case is a process of its own, without vLLM."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, os, sys
from vllm_tt.platform import ending
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO", stream=sys.stdout)
record = ending.MeshRecord(os.getpid())
ending.watch(record)
{watched}
if os.fork() == 0:  # the engine
    {engine}
    os._exit(0)
os.wait()
{server}
"""

CLOSED = "INFO The server has ended and its mesh is closed"


@pytest.fixture
def end(tmp_path):
    """``end(engine, server)`` runs the two in a process and its child; the server's exit code and log."""

    def run(engine, server="", watched=""):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(engine=engine or "pass", server=server, watched=watched)],
            env=os.environ | {"TT_VLLM_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    return run


def records(tmp_path):
    return list((tmp_path / "open-meshes").glob("*"))


def test_a_mesh_that_was_closed_is_the_last_line_of_a_clean_exit(end, tmp_path):
    assert end("record.opened(); record.closed(None)") == (0, [CLOSED])
    assert records(tmp_path) == []


STOPPED_AT_EXIT = """
import multiprocessing, signal, weakref
class Client:
    pass
def engine(ready):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    record.opened()
    try:
        ready.set()
        signal.pause()
    finally:
        record.closed(None)
fork = multiprocessing.get_context("fork")
ready = fork.Event()
child = fork.Process(target=engine, args=(ready,))
child.start()
client = Client()
weakref.finalize(client, lambda: (child.terminate(), child.join()))
ready.wait()
"""


def test_an_engine_that_ends_with_its_client_at_the_end_of_a_script_is_waited_for(end):
    assert end("", STOPPED_AT_EXIT) == (0, [CLOSED])


def test_a_request_to_stop_is_no_failure(end):
    assert end("record.opened(); record.closed(SystemExit(143))") == (0, [CLOSED])


def test_a_failed_engine_is_named_and_fails_the_server(end):
    assert end("record.opened(); record.closed(RuntimeError('no core found'))") == (
        1,
        ["ERROR The engine failed (RuntimeError: no core found); its mesh is closed"],
    )


def test_an_engine_that_died_with_its_mesh_open_fails_the_server(end, tmp_path):
    code, (line,) = end("record.opened()")
    assert code == 1
    pid = line.split("process ")[1].split(")")[0]
    assert line == (
        f"ERROR The engine (process {pid}) died with its mesh open: the lines above say why; if they do not, it was "
        "killed. Should the devices not answer at the next start, reset them with tt-smi -r"
    )
    assert records(tmp_path) == []


def test_a_server_without_a_mesh_says_nothing(end):
    assert end("", "sys.exit(3)") == (3, [])


def test_an_engine_in_the_servers_own_process_speaks_for_itself(end):
    assert end("", "record.opened(); record.closed(ValueError('x'))") == (0, [])


def test_the_next_server_speaks_of_one_that_was_killed(end, tmp_path):
    killed = end("record.opened()", "os.kill(os.getpid(), 9)")
    assert killed == (-9, [])
    (path,) = records(tmp_path)
    assert json.loads(path.read_text())["open"] is True
    server = path.stem.removesuffix("-0")
    assert end("") == (
        0,
        [
            (
                f"WARNING An earlier server (process {server}) was killed with its mesh open. Should the devices "
                "not answer, reset them with tt-smi -r"
            )
        ],
    )
    assert records(tmp_path) == []


OF_TWO = "other = ending.MeshRecord(record.server, 1)"
BOTH = f"{OF_TWO}; ending.watch(other)"


def test_the_meshes_of_several_engines_are_closed_in_one_line(end, tmp_path):
    both = f"{OF_TWO}; [(one.opened(), one.closed(None)) for one in (record, other)]"
    assert end(both, watched=BOTH) == (0, ["INFO The server has ended and its 2 meshes are closed"])
    assert records(tmp_path) == []


def test_one_of_several_engines_that_died_is_named(end):
    code, (closed, died) = end(f"{OF_TWO}; record.opened(); record.closed(None); other.opened()", watched=BOTH)
    assert code == 1
    assert closed == "INFO Engine 0 has closed its mesh"
    assert died.startswith("ERROR Engine 1 (process ")
    assert "died with its mesh open" in died


def test_a_record_that_cannot_be_written_does_not_end_the_server(end, tmp_path):
    Path(tmp_path / "open-meshes").write_text("a file where the folder should be")
    code, (opened, closed) = end("record.opened(); record.closed(None)")
    assert code == 0
    assert opened.startswith("WARNING cannot note in ")
    assert closed.startswith("WARNING cannot note in ")
