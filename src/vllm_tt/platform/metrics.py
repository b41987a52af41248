"""Our counts on vLLM's own ``/metrics``: a statistics logger, found by an entry point and fed at every step."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from vllm_tt import telemetry
from vllm_tt.platform.compat import told_counts
from vllm_tt.platform.settled import is_settled
from vllm_tt.telemetry import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig
    from vllm.v1.metrics.stats import IterationStats, MultiModalCacheStats, SchedulerStats

__all__ = ["TTStatLogger"]

_LABELS = ("model_name", "engine")


class TTStatLogger(AggregateStatLoggerBase):
    """Adds what the engines report to Prometheus metrics of this server, each engine under its index.

    With several API servers vLLM has prometheus_client join their values: counters as sums, of gauges the newest.
    """

    def __init__(self, vllm_config: VllmConfig, engine_indexes: list[int]) -> None:
        # The entry point is found on other platforms too, where it has nothing to tell.
        self._is_ours = is_settled(vllm_config)
        self._model = vllm_config.model_config.served_model_name
        self._engines = engine_indexes
        self._adders: dict[tuple[str, int], Callable[[int], None]] = {}

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,  # noqa: ARG002 - vLLM's signature
        mm_cache_stats: MultiModalCacheStats | None = None,  # noqa: ARG002
        engine_idx: int = 0,
    ) -> None:
        if scheduler_stats is None or not self._is_ours:
            return
        for key, amount in told_counts(scheduler_stats).items():
            add = self._adders.get((key, engine_idx)) or self._adder(key, engine_idx)
            add(amount)

    def log_engine_initialized(self) -> None:
        """Show what will be counted, at zero where nothing tells its counts apart."""
        if not self._is_ours:
            return
        for family in telemetry.FAMILIES:
            for engine in self._engines:
                if not family.label:
                    self._adder(telemetry.key_of(family, ""), engine)

    def _adder(self, key: str, engine: int) -> Callable[[int], None]:
        """What takes the amounts of a count; kept, as looking a metric's child up costs more than adding to it."""
        name, reason = telemetry.split_key(key)
        adder = self._adders[key, engine] = _metrics()[name].adder(self._model, str(engine), reason)
        return adder


class _Metric:
    """One of Prometheus' metrics and how it takes amounts."""

    def __init__(self, metric: Any, label: str, apply: str, scale: float) -> None:
        self._metric, self._label, self._apply, self._scale = metric, label, apply, scale

    def adder(self, model: str, engine: str, reason: str) -> Callable[[int], None]:
        child = self._metric.labels(model, engine, *([reason] if self._label else []))
        apply, scale = getattr(child, self._apply), self._scale
        return apply if scale == 1.0 else lambda amount: apply(amount * scale)


@cache
def _metrics() -> dict[str, _Metric]:
    """Every family and gauge, by name; a process can register them once, whatever engines it has."""
    found = {}
    for family in telemetry.FAMILIES:
        labels = (*_LABELS, family.label) if family.label else _LABELS
        counter = Counter(PREFIX + family.name, family.help, labels)
        found[family.name] = _Metric(counter, family.label, "inc", family.scale)
    for one in telemetry.GAUGES:
        gauge = Gauge(PREFIX + one.name, one.help, (*_LABELS, "lane"), multiprocess_mode="mostrecent")
        found[one.name] = _Metric(gauge, "lane", "set", one.scale)
    return found
