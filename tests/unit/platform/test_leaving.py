"""How a forked process ends: whether it runs C's exit handlers, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, multiprocessing, os, sys, types
from vllm_tt.platform.leaving import leave_in_full

say = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.write(1, b"handed back\\n"))

def load():
    sys.modules["ttnn"] = types.ModuleType("ttnn")

def child():
    leave_in_full()
    ctypes.CDLL(None).__cxa_atexit(say, None, None)
    {child}

{parent}
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
os.write(1, f"{{process.exitcode}}\\n".encode())
os._exit(0)
"""

CASES = {
    "without a runtime": ("pass", "pass", ["0"]),
    "that has loaded it": ("pass", "load()", ["handed back", "0"]),
    "whose parent has loaded it": ("load()", "pass", ["0"]),
    "that was stopped": ("pass", "load(); sys.exit(143)", ["handed back", "143"]),
    "that failed": ("pass", "load(); raise ValueError", ["handed back", "1"]),
    "with a fork of its own": ("pass", "load(); os.fork() or os._exit(0)", ["handed back", "0"]),
}


@pytest.mark.parametrize("process", CASES)
def test_a_forked_process(process):
    parent, child, said = CASES[process]
    program = PROGRAM.format(parent=parent, child=child)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == said
    assert ("ValueError" in done.stderr) == ("ValueError" in child)
