"""What the requests of a benchmark ask for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

__all__ = ["AMONG_GREEDY", "AMONG_SAMPLED", "WORKLOADS", "Job", "churn_jobs", "sampling_of", "steady_jobs"]

FILLER = 16
"""The token that prompts are made of."""
PLAIN = {"temperature": 0.0}
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
SPECIAL = {"temperature": 0.8, "min_p": 0.05}
"""No device samples it."""
AMONG_GREEDY, AMONG_SAMPLED = "one special row among greedy ones", "one special row among sampled ones"

_PARAMS: dict[str, dict[str, Any]] = {
    "greedy": PLAIN,
    "top_k, top_p": SAMPLED,
    "top_p": {"temperature": 0.8, "top_p": 0.9},
    "logprobs": PLAIN | {"logprobs": 5},
    AMONG_GREEDY: PLAIN,
    AMONG_SAMPLED: SAMPLED,
}
WORKLOADS = tuple(_PARAMS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A request: its prompt, how many tokens it generates and how they are sampled."""

    prompt: list[int]
    tokens: int
    params: dict[str, Any]
    arrival: float = 0.0
    """Seconds after the start."""


def sampling_of(workload: str, rows: int) -> list[dict[str, Any]]:
    """The sampling parameters of each of ``rows`` requests."""
    params = [_PARAMS[workload]] * rows
    return [SPECIAL, *params[1:]] if workload in (AMONG_GREEDY, AMONG_SAMPLED) else params


def steady_jobs(workload: str, rows: int, tokens: int, page: int) -> list[Job]:
    """Requests that decode side by side; their lengths differ, so that few need a new page in the same step."""
    lengths = [1 + page * row // rows for row in range(rows)]
    prompts = [[FILLER] * length for length in lengths]
    return [
        Job(prompt=prompt, tokens=tokens, params=params)
        for prompt, params in zip(prompts, sampling_of(workload, rows), strict=True)
    ]


def churn_jobs(rate: float, seconds: float, seed: int) -> list[Job]:
    """Greedy requests that arrive as a Poisson process, of 16-256 prompt and 20-200 generated tokens."""
    rng = random.Random(seed)
    jobs, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        prompt = [FILLER] * rng.randint(16, 256)
        jobs.append(Job(prompt=prompt, tokens=rng.randint(20, 200), params=PLAIN, arrival=now))
    return jobs
