"""Signals and the mesh: a process does not end before it has closed the devices it holds.

vLLM's engine process handles SIGTERM only between the end of its start-up and the start of its
shutdown. Before, the signal would kill it where it stands, while weights load. After, when a signal has
reached both the engine and the server that then terminates it, see `compat.outlive_repeated_signals`.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["exit_on_sigterm", "held", "leave_sigterm"]


def exit_on_sigterm() -> None:
    """Where SIGTERM would kill the process, make it end with SystemExit instead."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def leave_sigterm() -> None:
    """Undo ``exit_on_sigterm``, unless someone else has taken the signal over."""
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is _exit:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def held() -> Iterator[None]:
    """Let SIGTERM and SIGINT wait for the end of the block. Signals are the main thread's: elsewhere do nothing."""
    if not _in_main_thread():
        yield
        return
    came: list[int] = []
    # a handler that is not Python's reads as None and cannot be put back
    numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) is not None]
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in came:
            signal.raise_signal(caught)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
