"""Exit codes, and which error ends with which."""

from __future__ import annotations

from enum import IntEnum

from vllm_tt.errors import ConfigError, TTError

__all__ = ["Exit", "exit_code"]


class Exit(IntEnum):
    """What the exit codes of ``tt-bundle`` mean."""

    OK = 0
    FINDINGS = 1
    """Problems were found."""
    USAGE = 2
    """The command or the environment asks for something that cannot be."""
    NETWORK = 3
    LOCAL_IO = 4
    """A file or folder cannot be read or written, or exists already."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (ConfigError, Exit.USAGE),
    (TTError, Exit.FINDINGS),
    (ConnectionError, Exit.NETWORK),
    (OSError, Exit.LOCAL_IO),
)


def exit_code(error: BaseException) -> Exit | None:
    """The code that ``error`` ends with, by the first class that fits; None for a fault of the program."""
    declared = getattr(error, "exit_code", None)
    if isinstance(error, TTError) and declared is not None:
        return Exit(declared)
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)
