from collections import Counter

import pytest
from tools.simulate.stats import Latency, percentile

TEN = Counter(range(1, 11))


@pytest.mark.parametrize(("share", "value"), [(0.05, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.9, 9), (0.99, 10), (1, 10)])
def test_nearest_rank(share, value):
    assert percentile(TEN, share) == value


def test_counts_weigh():
    assert percentile(Counter({5: 99, 70: 1}), 0.99) == 5
    assert percentile(Counter({5: 98, 70: 2}), 0.99) == 70


def test_latency_is_in_milliseconds():
    counts = Counter({2_000_000: 3, 10_000_000: 1})
    assert Latency.of(counts) == Latency(mean=4.0, p50=2.0, p90=10.0, p99=10.0, max=10.0)
    assert Latency.of(Counter()) is None
