"""The order of a step, driven by vLLM's scheduler types on a fake adapter."""

from time import perf_counter

import pytest
from fake_adapter import FakeAdapter
from steps import decode, empty, new_request, prefill
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

from vllm_tt.batch.rows import Rows
from vllm_tt.scheduler.record import StepRecord
from vllm_tt.telemetry import Counters
from vllm_tt.worker.forward import Forward
from vllm_tt.worker.model_runner import ModelRunner, PlanMissing, RunnerOptions, StepOrder


class ArgmaxSampler:
    """The runner's view of a sampler: rows of logits in, a token a row out."""

    def __init__(self):
        self.asked = []

    def sample(self, logits, states, grammar):
        from vllm_tt.sampling.host import SampledRows

        self.asked.append(([state.req_id for state in states], grammar))
        return SampledRows(tokens=logits.argmax(-1).int().numpy(), logprobs=None)


@pytest.fixture
def adapter():
    return FakeAdapter()


@pytest.fixture
def sampler():
    return ArgmaxSampler()


@pytest.fixture
def runner(adapter, sampler):
    return ModelRunner(Forward(adapter, "kv cache", "none"), Rows(4, [4], 32), sampler, RunnerOptions(capacity=128))


def run(runner, output, grammar=None):
    assert runner.execute(output) is None
    result = runner.sample(grammar)
    runner.check()
    return dict(zip(result.req_ids, result.sampled_token_ids, strict=True))


def test_prefill_then_decode_continues_each_request(runner, adapter):
    first = prefill(
        ("a", 3, 0, 2, False),
        ("b", 0, 0, 1, False),
        new=[new_request("a", [4, 5], [1]), new_request("b", [20], [2])],
    )
    assert run(runner, first) == {"a": [6], "b": [21]}
    both = [("a", None), ("b", None)]
    assert run(runner, decode(("a", 3, 2, 3, False), ("b", 0, 1, 2, False), cached=both)) == {"a": [7], "b": [22]}
    (call,) = adapter.called("decode_forward")
    assert call["tokens"].view(-1).tolist() == [21, 0, 0, 6]
    assert call["start_pos"].tolist() == [1, -1, -1, 2]


def test_a_prefill_ends_before_its_results_are_asked_for(runner):
    output = prefill(("a", 0, 0, 2, False), new=[new_request("a", [4, 5], [1])])
    output.record = record = StepRecord(counters=Counters())
    began = perf_counter()
    run(runner, output)
    assert began < began + record.waited < record.ended < perf_counter()


def test_an_intermediate_chunk_is_not_sampled(runner, sampler):
    chunk = prefill(
        ("a", 1, 0, 2, True),
        ("b", 2, 0, 1, False),
        new=[new_request("a", [4, 5, 6], [1]), new_request("b", [8], [2])],
    )
    assert run(runner, chunk) == {"a": [], "b": [9]}
    assert run(runner, prefill(("a", 1, 2, 3, False), cached=[("a", None)])) == {"a": [7]}
    assert [req_ids for req_ids, _ in sampler.asked] == [["b"], ["a"]]


def test_a_step_of_chunks_alone_asks_the_sampler_nothing(runner, sampler):
    assert run(runner, prefill(("a", 1, 0, 2, True), new=[new_request("a", [4, 5, 6], [1])])) == {"a": []}
    assert sampler.asked == []


def test_the_grammar_reaches_the_sampler(runner, sampler):
    run(runner, prefill(("a", 0, 0, 1, False), new=[new_request("a", [4], [1])]), grammar="grammar")
    assert sampler.asked == [(["a"], "grammar")]


def test_an_empty_step_only_keeps_the_books(runner, adapter):
    run(runner, prefill(("a", 0, 0, 1, False), new=[new_request("a", [4], [1])]))
    assert runner.execute(empty(released=[0], finished=["a"])) is EMPTY_MODEL_RUNNER_OUTPUT
    runner.check()
    assert [name for name, _ in adapter.calls] == ["prefill_forward"]


def test_a_step_of_another_scheduler_is_refused(runner):
    with pytest.raises(PlanMissing) as error:
        runner.execute(SchedulerOutput.make_empty())
    assert str(error.value) == (
        "The step comes without a plan, from a scheduler that is not vllm_tt's: SchedulerOutput. "
        "Leave --scheduler-cls unset."
    )


def test_steps_are_sampled_one_by_one(runner):
    with pytest.raises(StepOrder, match="sample_tokens was called without a step"):
        runner.sample(None)
    runner.execute(prefill(("a", 0, 0, 1, False), new=[new_request("a", [4], [1])]))
    with pytest.raises(StepOrder, match="execute_model was called before the last step was sampled"):
        runner.execute(empty())
