"""Where the engine's process spends a step: our functions by the CPU time that passes in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.lanes import MESH
from tools.bench.report import Column
from tools.bench.rig import rigs
from tools.bench.settings import Settings, Steady, Timing
from tools.bench.stats import cpu_ms, middle

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
    lanes: int
    workload: str
    rounds: int
    steps: int
    """A round."""
    top: int
    """How many functions are reported."""

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each of the functions that take longest, and one for the whole step."""
        for rows in self.sizes:
            settings = Settings(model=self.model, rows=rows, lanes=self.lanes, mesh=MESH)
            asked = Steady(rows=rows, steps=self.steps, workload=self.workload)
            found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in checkouts}
            with rigs([(one, settings) for one in checkouts]) as ready:
                for _ in range(self.rounds):
                    for one in checkouts:
                        progress(f"{one.name}: {rows} rows")
                        found[one.name].append(ready[one, settings].profile(asked))
            for name, profiles in found.items():
                yield from ({"checkout": name, "rows": rows, **line} for line in _lines(profiles, self.top))


def _lines(profiles: Sequence[dict[str, Any]], top: int) -> Iterator[dict[str, Any]]:
    whole = middle([cpu_ms(Timing(**found["timing"])) for found in profiles])
    yield {"function": "everything", "own_ms": None, "ms": whole}
    per_sample = whole / max(sum(found["samples"] for found in profiles), 1)
    own, nearest = Counter[str](), Counter[str]()
    for found in profiles:
        own.update(found["top"])
        for line, samples in found["ours"].items():
            nearest[line.rpartition(":")[0]] += samples
    for function, samples in nearest.most_common(top):
        yield {"function": function, "own_ms": own[function] * per_sample, "ms": samples * per_sample}
