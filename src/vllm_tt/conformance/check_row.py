"""One thing that must hold, to be tried on cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.cases import Case
    from vllm_tt.conformance.rig import Sizes
    from vllm_tt.contract import Capabilities

__all__ = ["Check"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One row of the report."""

    name: str
    what: str
    cases: Callable[[Sizes], list[Case]]
    run: Callable[[Bench, Case], str | None]
    """What is wrong with a case, or None; may raise what the adapter raises."""
    declared: tuple[str, ...] = ()
    """The capabilities without which the row is not looked at."""
    pointless: Callable[[Sizes], str | None] | None = None
    """Why there is nothing to look at, or None."""

    def undeclared(self, capabilities: Capabilities) -> str | None:
        """The first capability that is missing. A limit of 0 is declared."""
        values = {name: getattr(capabilities, name) for name in self.declared}
        return next((name for name, value in values.items() if value is None or value is False), None)

    def skipped(self, capabilities: Capabilities, sizes: Sizes) -> str | None:
        """Why the row is not looked at, or None."""
        if missing := self.undeclared(capabilities):
            return f"{missing} is not declared"
        return self.pointless(sizes) if self.pointless else None
