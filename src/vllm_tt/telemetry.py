"""What an engine counts, by reason: the families, their counts and what has been added since they were last told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CHUNKED_PROMPTS",
    "DECODE_STALL",
    "DEVICE_WAIT",
    "DRAINS",
    "FAMILIES",
    "GAUGES",
    "HOST_SAMPLING",
    "LANE_KV_USAGE",
    "LANE_RUNNING",
    "LANE_WAITING",
    "PHASE_SWITCHES",
    "PREEMPTIONS",
    "PREFIX",
    "RECOMPUTED_TOKENS",
    "SLOTS",
    "STALLED_REQUESTS",
    "STALLS",
    "STEPS",
    "STEP_TIME",
    "TOKENS",
    "Counters",
    "Family",
    "Gauge",
    "key_of",
    "split_key",
]

log = get_logger(__name__)

PREFIX = "vllm_tt:"
"""Of the names on ``/metrics``."""

_SEPARATOR = "|"


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One thing that is counted."""

    name: str
    """Times are counted in whole microseconds under a name that ends in ``_seconds``."""
    help: str
    label: str = ""
    """What the counts are told apart by; empty for a single count, under the reason ""."""
    first: str = ""
    """What is logged when a reason occurs for the first time, with ``{reason}``; empty for nothing."""

    @property
    def scale(self) -> float:
        """What one count is worth in the unit that the name says."""
        return 1e-6 if self.name.endswith("_seconds") else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauge:
    """One thing that is read of each lane after a step."""

    name: str
    help: str
    scale: float = 1.0


STEPS = Family(name="steps", label="kind", help="Steps that ran, by phase and by where their tokens were sampled.")
HOST_SAMPLING = Family(
    name="host_sampling",
    label="reason",
    help="Steps that device sampling could not do alone, by reason.",
    first="Sampling on the host because of {reason}; it is counted from here on, and logged this once",
)
DRAINS = Family(
    name="drains",
    label="reason",
    help="Decode steps that had to wait for the step before to be read, by reason.",
    first="Decode steps wait for one another because of {reason}; it is counted from here on, and logged this once",
)
PHASE_SWITCHES = Family(name="phase_switches", help="Steps of another phase than the step before.")
TOKENS = Family(name="tokens", label="phase", help="Tokens computed, by phase.")
RECOMPUTED_TOKENS = Family(
    name="recomputed_tokens", help="Prefill tokens that had been computed before their request was preempted."
)
CHUNKED_PROMPTS = Family(name="chunked_prompts", help="Prompts that took several prefill steps.")
PREEMPTIONS = Family(name="preemptions", help="Requests that lost their slot and pages to others.")
STEP_TIME = Family(
    name="step_seconds", label="phase", help="Time from one step's end to the next one's, while there are steps."
)
DEVICE_WAIT = Family(
    name="device_wait_seconds", label="phase", help="The part of it that the host waited for the model's output."
)
STALLS = Family(name="decode_stalls", help="Prefill steps that ran while requests were waiting to decode.")
DECODE_STALL = Family(name="decode_stall_seconds", help="Time that those steps took.")
STALLED_REQUESTS = Family(
    name="stalled_request_seconds", help="The same, each step's time by the number of requests that waited to decode."
)
FAMILIES: tuple[Family, ...] = (
    STEPS,
    HOST_SAMPLING,
    DRAINS,
    PHASE_SWITCHES,
    TOKENS,
    RECOMPUTED_TOKENS,
    CHUNKED_PROMPTS,
    PREEMPTIONS,
    STEP_TIME,
    DEVICE_WAIT,
    STALLS,
    DECODE_STALL,
    STALLED_REQUESTS,
)

SLOTS = Gauge(name="lane_slots", help="Device slots of a lane: how many requests it can run at once.")
LANE_RUNNING = Gauge(name="lane_running", help="Requests of a lane that hold a slot.")
LANE_WAITING = Gauge(name="lane_waiting", help="Requests of a lane that wait for a slot or for pages.")
LANE_KV_USAGE = Gauge(
    name="lane_kv_cache_usage", help="Share of a lane's KV cache pages that requests hold.", scale=1e-6
)
GAUGES: tuple[Gauge, ...] = (SLOTS, LANE_RUNNING, LANE_WAITING, LANE_KV_USAGE)


def key_of(counted: Family | Gauge, reason: str) -> str:
    """One name for a count: of what, and by which reason or lane."""
    return counted.name + _SEPARATOR + reason


def split_key(key: str) -> tuple[str, str]:
    """The name and the reason of ``key_of``."""
    name, _, reason = key.partition(_SEPARATOR)
    return name, reason


class Counters:
    """The counts of one engine."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._untold: dict[str, int] = {}

    def count(self, family: Family, reasons: Iterable[str]) -> None:
        """One more for each reason."""
        for reason in reasons:
            self.add(family, 1, reason)

    def add(self, family: Family, amount: int, reason: str = "") -> None:
        counts = self._counts.get(family.name)
        if counts is None:
            counts = self._counts[family.name] = Counter()
        if family.first and reason not in counts:
            log.info(family.first.format(reason=reason))
        counts[reason] += amount
        key = key_of(family, reason)
        self._untold[key] = self._untold.get(key, 0) + amount

    def take(self) -> dict[str, int]:
        """What was added since the last call, by ``key_of`` names."""
        taken, self._untold = self._untold, {}
        return taken

    def summary(self, families: Iterable[Family] = (STEPS, HOST_SAMPLING, DRAINS)) -> str:
        """The counts so far, on one line; empty before the first."""
        return "; ".join(
            f"{family.name.replace('_', ' ')}: "
            + ", ".join(f"{count} {reason}" for reason, count in self._counts[family.name].most_common())
            for family in families
            if family.name in self._counts
        )

    def snapshot(self) -> dict[str, dict[str, int]]:
        """The counts so far: by family, then by reason."""
        return {name: dict(counts) for name, counts in self._counts.items()}
