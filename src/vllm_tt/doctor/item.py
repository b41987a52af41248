"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Item", "Level", "note", "ok", "problem"]

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """What was found, and what to do about it."""

    topic: str
    level: Level
    found: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def ok(topic: str, found: str) -> Item:
    return Item(topic=topic, level="ok", found=found)


def note(topic: str, found: str, remedy: str = "") -> Item:
    """Something that is fine for some and not for others."""
    return Item(topic=topic, level="note", found=found, remedy=remedy)


def problem(topic: str, found: str, remedy: str) -> Item:
    return Item(topic=topic, level="problem", found=found, remedy=remedy)
