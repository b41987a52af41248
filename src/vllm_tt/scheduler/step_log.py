"""The step log: one JSON object a line for every step, in a file that is bounded."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TextIO

__all__ = ["StepLog"]


SECONDS_KEPT = 0.2
"""How long lines are kept, to be written to the file together: a write a step would cost as much as all the rest."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class StepLog:
    """A file of steps; one that has grown to its limit becomes ``NAME.1``, in the place of the one before."""

    def __init__(self, path: str, limit: int) -> None:
        """``limit``: bytes of a file. Two are kept, so the log takes at most twice that."""
        self._path, self._limit = Path(path).expanduser(), limit
        self._file, self._size = self._open("a")
        self._flushed = 0.0

    def write(self, step: Mapping[str, Any]) -> None:
        line = _encode(step) + "\n"
        self._file.write(line)
        self._size += len(line)
        now = time.monotonic()
        if now - self._flushed >= SECONDS_KEPT:
            self._flushed = now
            self._file.flush()
        if self._size >= self._limit:
            self._file.close()
            self._path.replace(f"{self._path}.1")
            self._file, self._size = self._open("w")

    def flush(self) -> None:
        """Nothing may follow for long: let what there is be read."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _open(self, mode: Literal["a", "w"]) -> tuple[TextIO, int]:
        file = self._path.open(mode, encoding="ascii")
        return file, file.tell()
