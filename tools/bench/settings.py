"""How an engine is set up for a measurement, and what is measured: what the two processes tell each other."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arriving", "Settings", "Steady", "Timing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One engine."""

    model: str
    """The checkpoint's folder."""
    rows: int
    """Slots, of all lanes."""
    lanes: int = 1
    mesh: str = "N150"
    """The machine that is emulated."""
    asynchronous: bool = True
    """Asynchronous scheduling."""
    on_device: bool = True
    """Sampling on the device, for requests that allow it."""
    row_logits: bool = True
    """Whether the model declares supports_row_logits."""
    dtype: str = "float32"
    """That of the logits."""
    books: str = "on"
    """``off``: nothing is counted of the steps; ``log``: the step log is written too."""

    def __str__(self) -> str:
        scheduling = "asynchronous" if self.asynchronous else "synchronous"
        place = "device" if self.on_device else "host"
        split = ", no logits by row" if self.on_device and not self.row_logits else ""
        rows = f"{self.lanes} lanes of {self.rows // self.lanes} rows" if self.lanes > 1 else f"{self.rows} rows"
        books = "" if self.books == "on" else f", books {self.books}"
        return f"{rows}, {scheduling}, sampled on the {place}{split}{books}"

    def environment(self) -> dict[str, str]:
        """What the no-op model and the emulated mesh read."""
        return {"TT_EMULATE": self.mesh, "NOOP_LOGITS_DTYPE": self.dtype, "NOOP_ROW_LOGITS": str(int(self.row_logits))}

    def tt_options(self) -> dict[str, Any]:
        """The options of ``additional_config["tt"]``."""
        log = {"step_log": f"{tempfile.mkdtemp(prefix='tt-bench-')}/steps.jsonl"} if self.books == "log" else {}
        return {"lanes": self.lanes} | log | ({"sample_on_device_mode": "all"} if self.on_device else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Steady:
    """Steps of requests that decode side by side."""

    rows: int
    steps: int
    workload: str = "greedy"
    device_ms: float = 0.0
    floor: bool = False
    """The worker does nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arriving:
    """Steps of requests that come and go."""

    rate: float
    """Arrivals a second."""
    seconds: float
    warm: float
    """Seconds before steps are timed."""
    device_ms: float
    seed: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Consecutive steps of an engine; times in nanoseconds."""

    loop: list[int]
    """Each step's, on the clock, with what the client does for it: everything between two steps."""
    core: list[int]
    """The engine core's part of it: all that a server's engine process does."""
    cpu: int
    """Of all threads of the process, over all steps, without what waiting for the emulated device took."""
    device: int
    """What the device computed, over all steps."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """How much the engine's counters rose, by group and name; empty where it has none."""

    @property
    def steps(self) -> int:
        return len(self.loop)
