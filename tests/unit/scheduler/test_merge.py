from dataclasses import dataclass, field

import pytest
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.metrics.stats import PrefixCacheStats, SchedulerStats

from vllm_tt.scheduler.merge import merge_records, merge_values


@pytest.mark.parametrize(
    ("values", "merged"),
    [
        ([1, 2, 3], 6),
        ([0.5, 1], 1.5),
        ([False, True], True),
        ([False, False], False),
        ([[1], [], [2, 3]], [1, 2, 3]),
        ([{"a"}, {"a"}, set()], {"a"}),
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ([None, None], None),
        ([None, {"a"}, None], {"a"}),
        (["x", "x"], "x"),
    ],
    ids=str,
)
def test_values_of_one_field(values, merged):
    assert merge_values(values) == merged


def test_what_is_merged_is_left_alone():
    first, second = {"a": [1]}, {"b": [2]}
    merge_values([first, second])["c"] = []
    merge_values([[1], [2]]).append(3)
    assert (first, second) == ({"a": [1]}, {"b": [2]})


def cached(**fields):
    empty = CachedRequestData.make_empty()
    return type(empty)(**vars(empty) | fields)


def output(**fields):
    made = SchedulerOutput.make_empty()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_scheduler_outputs_become_one():
    first = output(
        num_scheduled_tokens={"a": 3},
        total_num_scheduled_tokens=3,
        finished_req_ids={"x"},
        num_common_prefix_blocks=[0],
        scheduled_cached_reqs=cached(req_ids=["a"], num_computed_tokens=[4], all_token_ids={"a": [1]}),
        preempted_req_ids={"p"},
    )
    second = output(
        num_scheduled_tokens={"b": 1, "c": 2},
        total_num_scheduled_tokens=3,
        num_common_prefix_blocks=[0],
        scheduled_cached_reqs=cached(req_ids=["b", "c"], num_computed_tokens=[5, 6], resumed_req_ids={"c"}),
        has_structured_output_requests=True,
    )
    merged = merge_records([first, second])
    assert merged.num_scheduled_tokens == {"a": 3, "b": 1, "c": 2}
    assert merged.total_num_scheduled_tokens == 6
    assert merged.num_common_prefix_blocks == [0]
    assert (merged.finished_req_ids, merged.preempted_req_ids) == ({"x"}, {"p"})
    assert merged.has_structured_output_requests
    assert merged.scheduled_cached_reqs.req_ids == ["a", "b", "c"]
    assert merged.scheduled_cached_reqs.num_computed_tokens == [4, 5, 6]
    assert merged.scheduled_cached_reqs.resumed_req_ids == {"c"}
    assert first.num_scheduled_tokens == {"a": 3}


def test_one_record_is_itself():
    only = output()
    assert merge_records([only]) is only


def test_statistics_are_added():
    parts = [
        SchedulerStats(num_running_reqs=2, prefix_cache_stats=PrefixCacheStats(requests=1, queries=10, hits=4)),
        SchedulerStats(num_running_reqs=3, prefix_cache_stats=PrefixCacheStats(requests=2, queries=20, hits=6)),
    ]
    total = merge_records(parts)
    assert total.num_running_reqs == 5
    assert (total.prefix_cache_stats.requests, total.prefix_cache_stats.hits) == (3, 10)


def test_a_field_that_a_later_release_adds_is_merged_by_its_type():
    @dataclass
    class Later(SchedulerStats):
        new_things: list = field(default_factory=list)

    assert merge_records([Later(new_things=[1]), Later(new_things=[2])]).new_things == [1, 2]
