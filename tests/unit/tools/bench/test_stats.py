import pytest
from tools.bench.stats import above, blocks, core_ms, counted, cpu_ms, efficiency, ratio, step_ms


def test_blocks_are_means_and_the_rest_is_dropped():
    assert blocks([1, 3, 5, 7, 100], 2) == [2, 6]
    assert blocks([1, 3], 20) == [2]


def test_a_step_is_the_median_of_its_blocks(timing):
    found = timing(2.0, core=1.5, cpu=3.0, steps=100)
    found.loop[7] = 10**9  # a stall spoils one block of five
    assert (step_ms(found), core_ms(found), cpu_ms(found)) == (2.0, 1.5, 3.0)


def test_what_every_second_step_does_counts(timing):
    found = timing(1.0, steps=40)
    found.loop[::2] = [3_000_000] * 20
    assert step_ms(found) == 2.0


def test_efficiency_counts_stalls(timing):
    found = timing(12.5, device=10, steps=4)
    assert efficiency(found) == pytest.approx(0.8)
    found.loop[1] *= 5
    assert efficiency(found) == pytest.approx(0.4)


def test_rounds_are_compared_with_their_own_round():
    slow_machine, fast_machine, another = (4.0, 2.0), (2.0, 1.0), (9.0, 3.0)
    values, others = zip(slow_machine, fast_machine, another, strict=True)
    assert ratio(values, others) == 2.0
    assert above(values, others) == 2.0


def test_counters_are_by_step_and_the_most_frequent_is_first(timing):
    first = timing(1, steps=10, counters={"drains": {"prefill": 1, "rows": 4}})
    second = timing(1, steps=30, counters={"drains": {"rows": 4}, "steps": {"decode": 30}})
    found = counted([first, second], "drains")
    assert list(found.items()) == [("rows", 0.2), ("prefill", 0.025)]
    assert counted([timing(1)], "drains") == {}
