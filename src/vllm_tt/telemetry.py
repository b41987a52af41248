"""Counters with reasons: what took a slow path, how often and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DRAINS", "HOST_SAMPLING", "STEPS", "Counters", "Family"]

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One thing that is counted, by reason."""

    name: str
    help: str
    first: str = ""
    """What is logged when a reason occurs for the first time, with ``{reason}``; empty for nothing."""


STEPS = Family(name="steps", help="Steps that ran, by phase and by where their tokens were sampled.")
HOST_SAMPLING = Family(
    name="host_sampling",
    help="Steps that device sampling could not do alone, by reason.",
    first="Sampling on the host because of {reason}; it is counted from here on, and logged this once",
)
DRAINS = Family(
    name="drains",
    help="Decode steps that had to wait for the step before to be read, by reason.",
    first="Decode steps wait for one another because of {reason}; it is counted from here on, and logged this once",
)


class Counters:
    """The counts of one engine."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def count(self, family: Family, reasons: Iterable[str]) -> None:
        """One more for each reason."""
        counts = self._counts.setdefault(family.name, Counter())
        for reason in reasons:
            if family.first and reason not in counts:
                log.info(family.first.format(reason=reason))
            counts[reason] += 1

    def summary(self) -> str:
        """The counts so far, on one line; empty before the first."""
        return "; ".join(
            f"{name.replace('_', ' ')}: " + ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
            for name, counts in self._counts.items()
        )

    def snapshot(self) -> dict[str, dict[str, int]]:
        """The counts so far: by family, then by reason."""
        return {name: dict(counts) for name, counts in self._counts.items()}
