"""What Prometheus shows of the counts that an engine's statistics bring."""

from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY
from vllm.v1.metrics.stats import SchedulerStats

from vllm_tt.platform import metrics
from vllm_tt.platform.compat import tell_counts
from vllm_tt.platform.metrics import TTStatLogger
from vllm_tt.platform.settled import STATE_KEY
from vllm_tt.telemetry import FAMILIES, GAUGES


@pytest.fixture
def logger(request):
    settled = getattr(request, "param", True)
    config = SimpleNamespace(
        additional_config={STATE_KEY: {}} if settled else {},
        model_config=SimpleNamespace(served_model_name=request.node.name),
    )
    made = TTStatLogger(config, [0, 1])
    made.log_engine_initialized()
    return made


def told(logger, engine, **counts):
    stats = SchedulerStats()
    tell_counts(stats, {key.replace("__", "|"): value for key, value in counts.items()})
    logger.record(stats, None, engine_idx=engine)


def value(request, name, engine, **labels):
    return REGISTRY.get_sample_value(name, {"model_name": request.node.name, "engine": str(engine)} | labels)


def test_counts_are_added_up_by_engine_and_reason(logger, request):
    told(logger, 0, drains__prefill=2, step_seconds__decode=1_500_000)
    told(logger, 0, drains__prefill=1)
    told(logger, 1, drains__prefill=5)
    assert value(request, "vllm_tt:drains_total", 0, reason="prefill") == 3
    assert value(request, "vllm_tt:drains_total", 1, reason="prefill") == 5
    assert value(request, "vllm_tt:step_seconds_total", 0, phase="decode") == 1.5


def test_gauges_show_the_newest(logger, request):
    told(logger, 0, lane_running__3=7, lane_kv_cache_usage__3=250_000)
    told(logger, 0, lane_running__3=2)
    assert value(request, "vllm_tt:lane_running", 0, lane="3") == 2
    assert value(request, "vllm_tt:lane_kv_cache_usage", 0, lane="3") == 0.25


def test_what_has_not_happened_yet_is_zero(logger, request):
    assert value(request, "vllm_tt:preemptions_total", 1) == 0
    logger.record(None, None)


@pytest.mark.parametrize("logger", [False], indirect=True)
def test_statistics_of_other_platforms_are_left_alone(logger, request):
    stats = SchedulerStats(waiting_lora_adapters={"an adapter": 3})
    logger.record(stats, None)
    assert value(request, "vllm_tt:preemptions_total", 0) is None


def test_every_name_and_help_text_is_its_own():
    known = metrics._metrics()
    assert list(known) == [one.name for one in (*FAMILIES, *GAUGES)]
    assert len({one.help for one in (*FAMILIES, *GAUGES)}) == len(known)
