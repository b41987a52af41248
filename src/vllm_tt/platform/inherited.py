"""What a forked engine inherits from the server, and sets right before it does anything else."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import stat
from multiprocessing.util import register_after_fork
from pathlib import Path

from vllm_tt.platform import compat
from vllm_tt.platform.leaving import leave_in_full

__all__ = ["let_go", "let_go_in_the_engine"]


def let_go_in_the_engine() -> None:
    """Have ``let_go`` run first in an engine that multiprocessing forks from this process."""
    register_after_fork(_in_the_engine, _in_the_engine)


def _in_the_engine(_registered: object) -> None:
    if compat.is_engine(multiprocessing.current_process()):
        let_go()


def let_go() -> None:
    """Leave signals, ports and garbage of the parent to the parent. In a forked process alone.

    Its handlers would swallow a request to stop while the model loads. Its port would stay taken when
    it has died, and clients would wait for an answer that nobody gives. Looking for garbage among its
    objects copies them all.
    """
    leave_in_full()
    gc.freeze()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _open_descriptors():
        if _is_for_clients(descriptor):
            # the number stays taken: the object that holds it would close another file some day
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _open_descriptors() -> list[int]:
    """All but standard input, output and error, which may be sockets of the system's log."""
    numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [number for number in numbers if number > 2]


def _is_for_clients(descriptor: int) -> bool:
    """Whether it is a socket that listens, or will: a stream without a peer."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
    except OSError:  # what listed the folder is closed by now
        return False
    found = socket.socket(fileno=descriptor)
    try:
        if found.type != socket.SOCK_STREAM:
            return False
        found.getpeername()
    except OSError:
        return True
    finally:
        found.detach()
    return False
