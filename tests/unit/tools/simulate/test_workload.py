import numpy as np
import pytest
from tools.simulate.lengths import Lengths
from tools.simulate.workload import NS_PER_S, TooLong, Workload, check_lengths


def workload(**changes):
    given = {"requests": 200, "rate": 4.0, "prompt": Lengths.parse("uniform:1-900"), "output": Lengths.parse("50")}
    return Workload(**given | changes)


def arrivals(**changes):
    return [job.arrival_ns / NS_PER_S for job in workload(**changes).jobs(1000)]


def test_constant_arrivals():
    assert arrivals(arrival="constant", requests=4) == [0, 0.25, 0.5, 0.75]


def test_bursts_keep_the_rate():
    assert arrivals(arrival="burst", burst=2, requests=5) == [0, 0, 0.5, 0.5, 1]


def test_poisson_arrivals_have_the_rate_and_its_spread():
    gaps = np.diff(arrivals(requests=20_000))
    assert arrivals()[0] == 0
    assert abs(gaps.mean() * 4 - 1) < 0.03
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03


def test_a_seed_gives_one_workload():
    assert workload(seed=3).jobs(1000) == workload(seed=3).jobs(1000)
    assert workload(seed=3).jobs(1000) != workload(seed=4).jobs(1000)


def test_lengths_are_cut_to_the_longest_request():
    jobs = workload().jobs(100)
    assert max(job.prompt_tokens for job in jobs) == 99
    assert max(job.prompt_tokens + job.output_tokens for job in jobs) == 100
    assert min(job.output_tokens for job in jobs) == 1
    check_lengths(jobs, 100)


def test_a_longer_request_is_refused(job):
    with pytest.raises(TooLong) as caught:
        check_lengths([job("a", 0, 60, 40), job("b", 0, 60, 41)], 100)
    assert str(caught.value) == "b has 60 prompt tokens and asks for 41: together more than --max-model-len 100."


def test_prefixes_and_priorities():
    jobs = workload(prefix_tokens=300, prefix_share=0.25, prefix_groups=3, priorities=4, requests=4000).jobs(1000)
    shared = [job for job in jobs if job.prefix_group is not None]
    assert abs(len(shared) / len(jobs) - 0.25) < 0.03
    assert {job.prefix_group for job in shared} == {0, 1, 2}
    assert all(job.prefix_tokens == min(300, job.prompt_tokens) for job in shared)
    assert all(job.prefix_tokens == 0 for job in jobs if job.prefix_group is None)
    assert {job.priority for job in jobs} == {0, 1, 2, 3}
