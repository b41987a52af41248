"""What the books of steps cost: the same requests uncounted, counted, and with the step log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tools.bench.beside import Beside
from tools.bench.plan import Case
from tools.bench.report import Column, milliseconds, times
from tools.bench.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COLUMNS", "Books"]

COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("scheduling", "scheduling", left=True),
    Column("books", "books", left=True),
    Column("step, ms", "step_ms", milliseconds),
    Column("by uncounted", "by_uncounted", times),
    Column("core, ms", "core_ms", milliseconds),
    Column("by uncounted", "core_by_uncounted", times),
)
UNCOUNTED, COUNTED, LOGGED = "off", "on", "log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Books(Beside):
    """Steps that nobody counts first."""

    first: ClassVar[str] = "uncounted"

    def cases(self, mode: str) -> Sequence[Case]:
        return [
            Case(
                name=f"{mode}, {books}",
                settings=Settings(model=self.model, rows=self.rows, asynchronous=mode == "async", books=books),
            )
            for books in (UNCOUNTED, COUNTED, LOGGED)
        ]

    def told(self, case: Case) -> dict[str, Any]:
        return {"books": case.settings.books}
