"""Where the engine's process spends a step: our functions by the CPU time that passes in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.report import Column
from tools.bench.rig import rigs
from tools.bench.settings import Settings, Steady, Timing
from tools.bench.stats import cpu_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.rig import Checkout

__all__ = ["COLUMNS", "Profile"]


def _microseconds(value: float) -> str:
    return f"{value * 1000:,.0f}"


COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("rows", "rows"),
    Column("function", "function", left=True),
    Column("itself, us a step", "own_ms", _microseconds),
    Column("with vLLM and torch, us", "ms", _microseconds),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """What is profiled."""

    model: str
    sizes: Sequence[int]
    workload: str
    steps: int
    top: int
    """How many functions are reported."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each of the functions that take longest, and one for the whole step."""
        for rows in self.sizes:
            settings = Settings(model=self.model, rows=rows)
            with rigs([(one, settings) for one in checkouts]) as ready:
                for one in checkouts:
                    progress(f"{one.name}: {rows} rows")
                    asked = Steady(rows=rows, steps=self.steps, workload=self.workload)
                    found = ready[one, settings].profile(asked)
                    yield from ({"checkout": one.name, "rows": rows, **line} for line in self._lines(found))

    def _lines(self, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
        whole = cpu_ms(Timing(**found["timing"]))
        yield {"function": "everything", "own_ms": None, "ms": whole}
        per_sample = whole / max(found["samples"], 1)
        nearest: Counter[str] = Counter()
        for line, samples in found["ours"].items():
            nearest[line.rpartition(":")[0]] += samples
        for function, samples in nearest.most_common(self.top):
            own = found["top"].get(function, 0) * per_sample
            yield {"function": function, "own_ms": own, "ms": samples * per_sample}
