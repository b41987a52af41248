"""How far a transfer is, on stderr: a bar on a terminal, elsewhere a line now and then. Nothing with ``--json``."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

from vllm_tt.bundle.paths import amount
from vllm_tt.cli.report import session

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Meter", "meter", "wants_bars"]

_TENTHS = 10
_SECONDS = 1.0
"""Between two lines."""


class Meter(Protocol):
    """What shows the progress of one transfer."""

    def begin(self, total: int) -> Meter:
        """Say how many bytes there will be."""

    def advance(self, size: int) -> None:
        """Some bytes are done; from any thread."""


@contextlib.contextmanager
def meter(what: str, *, hidden: bool = False) -> Iterator[Meter]:
    """Shows the progress of ``what`` ("Fetching org/name"); ``hidden`` for none."""
    if hidden or session().json:
        yield _Silent()
    elif wants_bars():
        with _bar(what) as bar:
            yield bar
    else:
        yield _Lines(what)


def wants_bars() -> bool:
    """Whether stderr is a terminal that can draw over itself."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"


class _Silent:
    def begin(self, total: int) -> _Silent:  # noqa: ARG002 - the protocol's
        return self

    def advance(self, size: int) -> None:
        pass


class _Lines:
    """A line for each tenth, but none for what is done in a moment."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._total = self._done = self._shown = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def begin(self, total: int) -> _Lines:
        self._total, self._last = total, time.monotonic()
        return self

    def advance(self, size: int) -> None:
        with self._lock:
            self._done += size
            tenths = self._done * _TENTHS // max(self._total, 1)
            if tenths > self._shown and time.monotonic() - self._last >= _SECONDS:
                self._shown, self._last = tenths, time.monotonic()
                print(f"{self._what}: {tenths * 10} % of {amount(self._total)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Meter]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        class Bar:
            task = progress.add_task(what, total=None)

            def begin(self, total: int) -> Bar:
                progress.update(self.task, total=total)
                return self

            def advance(self, size: int) -> None:
                progress.advance(self.task, size)

        yield Bar()
