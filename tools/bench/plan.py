"""Which engines a command measures, what it asks them, and the rounds in which it does so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tools.bench.rig import rigs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.bench.rig import Checkout, Rig
    from tools.bench.settings import Settings, Timing

__all__ = ["Case", "Rounds", "measure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One line of a report: an engine and what it is asked."""

    name: str
    settings: Settings
    ask: dict[str, Any] = field(default_factory=dict)


Rounds = dict[tuple[str, str], list["Timing"]]
"""By checkout and case: a timing a round."""


def measure(
    cases: Sequence[Case],
    checkouts: Sequence[Checkout],
    rounds: int,
    ask: Callable[[Rig, Case], Timing],
    progress: Callable[[str], object],
) -> Rounds:
    """Every case of every checkout, ``rounds`` times in turn, so that what else the machine does hits all the same.

    Cases with the same settings share an engine.
    """
    engines = dict.fromkeys((one, case.settings) for one in checkouts for case in cases)
    found: Rounds = {(one.name, case.name): [] for case in cases for one in checkouts}
    with rigs(engines) as ready:
        for _ in range(rounds):
            for case in cases:
                for one in checkouts:
                    progress(f"{one.name}: {case.name}")
                    found[one.name, case.name].append(ask(ready[one, case.settings], case))
    return found
