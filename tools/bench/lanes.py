"""What lanes cost the host: the same requests in one batch of one scheduler, and in lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tools.bench.beside import Beside
from tools.bench.plan import Case
from tools.bench.report import Column, milliseconds, times
from tools.bench.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COLUMNS", "Lanes"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("scheduling", "scheduling", left=True),
    Column("lanes", "lanes"),
    Column("step, ms", "step_ms", milliseconds),
    Column("by plain", "by_plain", times),
    Column("core, ms", "core_ms", milliseconds),
    Column("by plain", "core_by_plain", times),
    Column("CPU, ms", "cpu_ms", milliseconds),
)
MESH = "T3K"
"""Eight chips: as many lanes as divide them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes(Beside):
    """One batch first."""

    first: ClassVar[str] = "plain"

    lanes: Sequence[int]

    def cases(self, mode: str) -> Sequence[Case]:
        return [
            Case(
                name=f"{mode}, {lanes}",
                settings=Settings(
                    model=self.model, rows=self.rows, lanes=lanes, mesh=MESH, asynchronous=mode == "async"
                ),
            )
            for lanes in (1, *self.lanes)
        ]

    def told(self, case: Case) -> dict[str, Any]:
        return {"lanes": case.settings.lanes}
