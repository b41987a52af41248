"""What a check found: a row for each thing that must hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Report", "Row", "Status"]

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing that must hold, and whether it does."""

    name: str
    status: Status
    detail: str = ""
    """What was seen, or why it was not looked at."""
    case: str = ""
    """The smallest case that shows a failure."""
    place: str = ""
    """The adapter's line that failed."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Row:
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All rows of a check, in the order they were run."""

    rows: tuple[Row, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was run: adapter, mesh, sizes, memory."""

    @property
    def ok(self) -> bool:
        return all(row.status != "fail" for row in self.rows)

    def count(self, status: Status) -> int:
        return sum(row.status == status for row in self.rows)
