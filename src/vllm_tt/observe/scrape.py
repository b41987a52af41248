"""A server's ``/metrics``, read once: the samples of vLLM and of ``vllm_tt``, by name and labels."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_tt.errors import ConfigError, TTError
from vllm_tt.telemetry import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "NoAnswer",
    "NoMetrics",
    "NoMetricsOfOurs",
    "NoParser",
    "NotAnAddress",
    "Reading",
    "metrics_url",
    "parsed",
    "scrape",
]

SECONDS = 10.0
"""How long an answer may take."""


class NotAnAddress(ConfigError):
    """{url!r} is no address of a server: write http://HOST:PORT, such as http://localhost:8000."""


class NoAnswer(TTError):
    """{url} does not answer ({reason}): is the server healthy, and are these its host and port?"""

    exit_code = 3


class NoMetrics(TTError):
    """{url} is not a vLLM server's /metrics ({reason}): give the address that clients use, as http://HOST:PORT."""

    exit_code = 3


class NoMetricsOfOurs(TTError):
    """{url} has no metrics named {prefix}*: the server runs with --disable-log-stats, without this package, or on
    another platform; where it is ours, its log has a line that begins with "Serving".
    """


class NoParser(ConfigError):
    """Reading metrics takes prometheus_client, which vLLM brings: run tt-bundle in vLLM's environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The values at one time."""

    at: float
    """Seconds of `time.monotonic`."""
    values: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]
    """By the sample's name: its labels and value, for each child."""

    def total(self, name: str) -> float:
        return sum(value for _, value in self.values.get(name, ()))

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Sums over all other labels."""
        sums: dict[tuple[str, ...], float] = {}
        for found, value in self.values.get(name, ()):
            key = tuple(found.get(label, "") for label in labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums


def metrics_url(url: str) -> str:
    """The address of ``/metrics`` of what the user wrote: a host and port, a server's address, or one of its paths."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise NotAnAddress(url=url)
    path = parts.path.rstrip("/")
    path = path if path.endswith("/metrics") else path.removesuffix("/v1") + "/metrics"
    return f"{parts.scheme}://{parts.netloc}{path}"


def scrape(url: str) -> Reading:
    """Read ``url``, which ``metrics_url`` made."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:  # noqa: S310 - http and https alone, see metrics_url
            text = response.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            raise NoMetrics(url=url, reason=f"HTTP {error.code}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NoAnswer(url=url, reason=getattr(reason, "strerror", None) or reason) from None
    return parsed(text, url, time.monotonic())


def parsed(text: str, url: str, at: float) -> Reading:
    """The samples of a text in Prometheus' format that was read of ``url``."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise NoParser from None
    values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for metric in text_string_to_metric_families(text):
            for sample in metric.samples:
                if sample.name.startswith((PREFIX, "vllm:")):
                    values.setdefault(sample.name, []).append((sample.labels, sample.value))
    except ValueError:
        raise NoMetrics(url=url, reason="something else than metrics") from None
    if not values:
        raise NoMetrics(url=url, reason="none of its metrics")
    if not any(name.startswith(PREFIX) for name in values):
        raise NoMetricsOfOurs(url=url, prefix=PREFIX)
    return Reading(at=at, values={name: tuple(found) for name, found in values.items()})
