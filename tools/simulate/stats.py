"""What a run is judged by: exact percentiles, and a record that prints as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import Counter

__all__ = ["Latency", "Report", "percentile"]


def percentile(counts: Counter[int], share: float) -> int:
    """The least value that at least ``share`` of the values do not exceed (nearest rank)."""
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 1e-9:
            return value
    raise ValueError("no values")


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, counts: Counter[int]) -> Latency | None:
        """From nanoseconds and how often each was measured; None when none was."""
        if not counts:
            return None
        p50, p90, p99 = (percentile(counts, share) / 1e6 for share in (0.5, 0.9, 0.99))
        mean = sum(value * count for value, count in counts.items()) / counts.total() / 1e6
        return cls(mean=round(mean, 6), p50=p50, p90=p90, p99=p99, max=max(counts) / 1e6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One simulated run."""

    policy: str
    requests: int
    duration_s: float
    """From the first arrival to the last token."""
    requests_per_s: float
    output_tokens_per_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    """Prompt tokens that were not computed because the prefix cache had them."""
    recomputed_tokens: int
    """Tokens computed again after preemptions."""
    preemptions: int
    ttft_ms: Latency | None
    """From arrival to the first token."""
    itl_ms: Latency | None
    """Between two tokens of a request, over all requests."""
    e2e_ms: Latency | None
    """From arrival to the last token."""
    prefill_steps: int
    decode_steps: int
    empty_steps: int
    switches: int
    """Changes of phase."""
    longest_prefill_run: int
    """Prefill steps in a row, each with a request that could have decoded instead."""
    device_busy: float
    """Share of the duration."""
    decode_stalls_s: dict[str, float]
    """Request-seconds that decoding requests were not decoded, by cause."""
    first_token_waits_s: dict[str, float]
    """Request-seconds without a first token and without being computed, by cause."""
    slots_mean: float
    slots_max: int
    kv_mean: float
    """Share of the pages in use, over time."""
    kv_max: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
