import pytest
from tools.bench.workloads import AMONG_GREEDY, AMONG_SAMPLED, WORKLOADS, churn_jobs, sampling_of, steady_jobs


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_row_has_parameters(workload):
    assert len(sampling_of(workload, 5)) == 5


@pytest.mark.parametrize(("workload", "plain"), [(AMONG_GREEDY, 0.0), (AMONG_SAMPLED, 0.8)])
def test_one_row_is_special(workload, plain):
    first, *others = sampling_of(workload, 4)
    assert "min_p" in first
    assert [(row["temperature"], "min_p" in row) for row in others] == [(plain, False)] * 3


def test_rows_need_new_pages_in_different_steps():
    lengths = [len(job.prompt) for job in steady_jobs("greedy", 8, tokens=10, page=64)]
    assert lengths == [1, 9, 17, 25, 33, 41, 49, 57]


def test_arrivals_are_the_same_for_the_same_seed():
    jobs = churn_jobs(50, 20, seed=3)
    assert jobs == churn_jobs(50, 20, seed=3) != churn_jobs(50, 20, seed=4)
    assert 800 < len(jobs) < 1200
    arrivals = [job.arrival for job in jobs]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 20
    assert {20 <= job.tokens <= 200 and 16 <= len(job.prompt) <= 256 for job in jobs} == {True}
