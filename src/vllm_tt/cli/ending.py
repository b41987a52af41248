"""Commands that are ended from outside end as with Ctrl-C: what they began is taken back."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["terminable"]


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does, with everything cleaned up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
