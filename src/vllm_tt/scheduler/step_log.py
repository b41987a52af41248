"""The step log: one JSON object a line for every step, in a file that is bounded."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TextIO

__all__ = ["StepLog"]

log = get_logger(__name__)

SECONDS_KEPT = 0.2
"""How long lines are kept, to be written to the file together: a write a step would cost as much as all the rest."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class StepLog:
    """A file of steps; one that has grown to its limit becomes ``NAME.1``, in the place of the one before.

    What can no longer be written ends it with a warning: requests are worth more than their log.
    """

    def __init__(self, path: str, limit: int) -> None:
        """``limit``: bytes of a file. Two are kept, so the log takes at most twice that."""
        self._path, self._limit = Path(path).expanduser(), limit
        self._file: TextIO | None
        self._file, self._size = self._open("a")
        self._flushed = 0.0

    def write(self, step: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = _encode(step) + "\n"
        try:
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
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        """Nothing may follow for long: let what there is be read."""
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._end(error)

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._end(error)

    def _end(self, error: OSError) -> None:
        log.warning("The step log %s ends here, as it cannot be written any more: %s", self._path, error.strerror)
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # it tries to write what it still has
                file.close()

    def _open(self, mode: Literal["a", "w"]) -> tuple[TextIO, int]:
        file = self._path.open(mode, encoding="ascii")
        return file, file.tell()
