"""What a forked engine keeps of its parent, tried in processes of their own, without vLLM."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, multiprocessing, signal, socket, sys
from vllm_tt.platform import inherited

def parents(*_): sys.exit(3)
signal.signal(signal.SIGTERM, parents)
signal.signal(signal.SIGINT, parents)
a, b = socket.socketpair()
waking, wakes = socket.socketpair()
wakes.setblocking(False)
signal.set_wakeup_fd(wakes.fileno())
listening = socket.create_server(("127.0.0.1", 0))
there = listening.getsockname()

def child():
    names = {{signal.SIG_DFL: "default", signal.default_int_handler: "interrupt", parents: "parent's"}}
    print(*(names[signal.getsignal(number)] for number in (signal.SIGTERM, signal.SIGINT)))
    print(signal.set_wakeup_fd(-1) == wakes.fileno())
    b.send(b"still open")
    pipe.recv()  # the parent has closed its own
    try:
        socket.create_connection(there, timeout=5).close()
        print("answers")
    except ConnectionRefusedError:
        print("refused")
    print(gc.get_freeze_count() > 1000)

inherited.let_go_in_the_engine()
inherited.let_go_in_the_engine()
pipe, parents_pipe = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=child, name={name!r})
process.start()
listening.close()
parents_pipe.send(None)
process.join()
print(a.recv(100).decode(), process.exitcode)
"""


@pytest.fixture
def lines():
    def run(name):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("name", ["EngineCore", "EngineCore_DP1", "VLLM_DP_Coordinator"])
def test_an_engine_leaves_signals_ports_and_garbage_to_its_parent(lines, name):
    assert lines(name) == ["default interrupt", "False", "refused", "True", "still open 0"]


def test_other_children_of_the_process_are_left_as_they_are(lines):
    assert lines("Process-1") == ["parent's parent's", "True", "answers", "False", "still open 0"]
