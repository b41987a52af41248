"""Start-up: from `vllm serve` to healthy by phase, beside one import of vLLM's API server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.report import Column, times
from tools.bench.server import empty_cache, import_seconds, start_server
from tools.bench.stats import middle, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.bench.rig import Checkout
    from tools.bench.server import Start

__all__ = ["COLUMNS", "PHASES", "Startup", "phases"]

PHASES: tuple[tuple[str, str], ...] = (
    ("API server imported", r"non-default args"),
    ("configured", r"Serving TT"),
    ("engine imported", r"Initializing a V1 LLM engine"),
    ("mesh open", r"multidevice with .* is created"),
    ("model ready", r"init engine .* took"),
    ("engine ready", r"Supported tasks"),
)
"""What has been done when a line of the log says so; after the last comes the API server's own start."""


def _seconds(value: float) -> str:
    return f"{value:.1f}"


COLUMNS = (
    Column("checkout", "checkout", left=True),
    Column("model-info cache", "cache", left=True),
    Column("one import, s", "import_s", _seconds),
    Column("healthy, s", "healthy_s", _seconds),
    Column("by import", "by_import", times),
    *(Column(f"{name}, s", name, _seconds) for name, _ in PHASES),
    Column("serving, s", "serving", _seconds),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Startup:
    """What is measured."""

    model: str
    rounds: int

    def run(self, checkouts: Sequence[Checkout], progress: Callable[[str], object]) -> Iterator[dict[str, Any]]:
        """A record for each state of vLLM's cache. Servers start one at a time, beside nothing else of ours."""
        imports: dict[str, list[float]] = {one.name: [] for one in checkouts}
        starts: dict[tuple[str, str], list[Start]] = {}
        for _ in range(self.rounds):
            for one in checkouts:
                progress(f"{one.name}: one import")
                imports[one.name].append(import_seconds(one.environment()))
                for cache in ("warm", "empty"):
                    progress(f"{one.name}: vllm serve, {cache} cache")
                    starts.setdefault((one.name, cache), []).append(self._start(one, empty=cache == "empty"))
        for (name, cache), found in starts.items():
            yield _record(name, cache, imports[name], found)

    def _start(self, checkout: Checkout, *, empty: bool) -> Start:
        if not empty:
            return start_server(self.model, checkout.environment())
        with empty_cache() as folder:
            return start_server(self.model, checkout.environment(), cache=folder)


def phases(start: Start) -> dict[str, float]:
    """Seconds of each phase; one whose end the log does not show is part of the next."""
    found, before = {}, 0.0
    for name, pattern in PHASES:
        at = next((seconds for seconds, line in start.lines if re.search(pattern, line)), None)
        if at is not None:
            found[name], before = at - before, at
    return found | {"serving": start.healthy - before}


def _record(checkout: str, cache: str, imports: Sequence[float], starts: Sequence[Start]) -> dict[str, Any]:
    healthy = [start.healthy for start in starts]
    parts = [phases(start) for start in starts]
    return {
        "checkout": checkout,
        "cache": cache,
        "import_s": middle(imports),
        "healthy_s": middle(healthy),
        "by_import": ratio(healthy, imports),
        **{name: middle([part.get(name, 0.0) for part in parts]) for name in parts[0]},
    }
