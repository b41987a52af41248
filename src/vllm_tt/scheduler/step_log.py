"""The step log: one JSON object a line for every step, in a file that is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TextIO

__all__ = ["StepLog"]


class StepLog:
    """A file of steps; one that has grown to its limit becomes ``NAME.1``, in the place of the one before."""

    def __init__(self, path: str, limit: int) -> None:
        """``limit``: bytes of a file. Two are kept, so the log takes at most twice that."""
        self._path, self._limit = Path(path).expanduser(), limit
        self._file, self._size = self._open("a")

    def write(self, step: Mapping[str, Any]) -> None:
        line = json.dumps(step, separators=(",", ":")) + "\n"
        self._file.write(line)
        self._size += len(line)
        if self._size >= self._limit:
            self._file.close()
            self._path.replace(f"{self._path}.1")
            self._file, self._size = self._open("w")

    def close(self) -> None:
        self._file.close()

    def _open(self, mode: Literal["a", "w"]) -> tuple[TextIO, int]:
        # Line buffering: what has happened can be read while the server runs.
        file = self._path.open(mode, encoding="ascii", buffering=1)
        return file, file.tell()
