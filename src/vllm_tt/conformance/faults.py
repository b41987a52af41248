"""Says in one line what an adapter's exception is and which of its lines raised it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from vllm_tt.errors import TTError

__all__ = ["cause_text", "described", "source_line"]


def described(error: BaseException, folder: Path) -> str:
    """The exception with its place: the last line of the bundle on the way to it."""
    if isinstance(error, TTError):
        return cause_text(error)
    place = source_line(error, folder)
    return f"{type(error).__name__}: {cause_text(error)}" + (f" ({place})" if place else "")


def source_line(error: BaseException, folder: Path) -> str:
    """``file:line (text)`` of the bundle's last frame, or of the last frame at all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    last = (own or list(frames))[-1:]
    if not last:
        return ""
    name = Path(last[0].filename)
    shown = name.relative_to(folder) if name.is_relative_to(folder) else name
    return f"{shown}:{last[0].lineno}" + (f", {last[0].line}" if last[0].line else "")


def cause_text(error: BaseException) -> str:
    """What the exception says, on one line; of ttnn's the condition and the explanation."""
    text = re.split(r"\n(?:backtrace|Location):", str(error))[0]
    text = re.sub(r"TT_(FATAL|THROW) @ \S+: ", "", text)
    text = re.sub(r"\s*\binfo:\s*\n", ": ", text, count=1)
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= 600 else words[:597] + "..."
