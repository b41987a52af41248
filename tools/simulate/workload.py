"""What is asked of the server: jobs, drawn from distributions by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt
    from tools.simulate.lengths import Lengths

__all__ = ["NS_PER_S", "Job", "TooLong", "Workload", "check_lengths"]

NS_PER_S = 1_000_000_000


class TooLong(ConfigError):
    """{name} has {prompt} prompt tokens and asks for {output}: together more than --max-model-len {longest}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One request."""

    name: str
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix_group: int | None = None
    """Jobs of a group begin with the same tokens."""
    prefix_tokens: int = 0
    """How many of them, at most the prompt."""
    priority: int = 0
    """Lower goes first, under the priority policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """An arrival process with distributions of lengths."""

    requests: int
    arrival: Literal["poisson", "constant", "burst"] = "poisson"
    rate: float
    """Requests a second, on average."""
    burst: int = 32
    """Requests that arrive together (burst)."""
    prompt: Lengths
    output: Lengths
    prefix_tokens: int = 0
    """Length of a shared prefix; 0 for none."""
    prefix_share: float = 0.5
    """Share of the requests that begin with a shared prefix."""
    prefix_groups: int = 1
    """How many different shared prefixes there are."""
    priorities: int = 1
    """Priorities 0 to this number less one, equally likely."""
    seed: int = 0

    def jobs(self, longest: int) -> list[Job]:
        """The jobs by arrival; lengths are cut so that prompt and output fit into ``longest`` tokens."""
        rng = np.random.default_rng(self.seed)
        arrivals = self._arrivals(rng)
        prompts = np.minimum(self.prompt.sample(rng, self.requests), longest - 1)
        outputs = np.minimum(self.output.sample(rng, self.requests), longest - prompts)
        shares = rng.random(self.requests) < self.prefix_share
        groups = rng.integers(0, self.prefix_groups, self.requests)
        priorities = rng.integers(0, self.priorities, self.requests)
        return [
            Job(
                name=f"r{i}",
                arrival_ns=int(arrivals[i]),
                prompt_tokens=int(prompts[i]),
                output_tokens=int(outputs[i]),
                prefix_group=int(groups[i]) if self.prefix_tokens and shares[i] else None,
                prefix_tokens=min(self.prefix_tokens, int(prompts[i])) if shares[i] else 0,
                priority=int(priorities[i]),
            )
            for i in range(self.requests)
        ]

    def _arrivals(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Nanoseconds; the first request, or burst, arrives at 0."""
        if self.arrival == "burst":
            seconds = np.arange(self.requests) // self.burst * (self.burst / self.rate)
        elif self.arrival == "constant":
            seconds = np.arange(self.requests) / self.rate
        else:
            gaps = rng.exponential(1 / self.rate, self.requests)
            seconds = np.cumsum(gaps) - gaps[0]
        return np.rint(seconds * NS_PER_S).astype(np.int64)


def check_lengths(jobs: list[Job], longest: int) -> None:
    """Raise for a job that the server would refuse."""
    for job in jobs:
        if job.prompt_tokens + job.output_tokens > longest:
            raise TooLong(name=job.name, prompt=job.prompt_tokens, output=job.output_tokens, longest=longest)
