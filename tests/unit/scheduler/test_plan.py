import dataclasses
import pickle

from vllm.v1.core.sched.output import SchedulerOutput

from vllm_tt.scheduler.plan import EMPTY_PLAN, Phase, StepPlan, TTSchedulerOutput


def test_a_plan_has_one_entry_a_row():
    plan = StepPlan.build(Phase.PREFILL, [("a", 3, 0, 64, True), ("b", 1, 5, 6, False)], released=(7,))
    assert plan.req_ids == ("a", "b")
    assert plan.slots.tolist() == [3, 1]
    assert plan.starts.tolist() == [0, 5]
    assert plan.ends.tolist() == [64, 6]
    assert plan.intermediate.tolist() == [True, False]
    assert plan.released == (7,)


def test_the_empty_plan_has_no_rows():
    assert EMPTY_PLAN.phase is Phase.EMPTY
    assert EMPTY_PLAN.slots.size == EMPTY_PLAN.ends.size == 0


def test_the_output_keeps_every_field_of_vllms():
    base = SchedulerOutput.make_empty()
    base.finished_req_ids = {"x"}
    output = TTSchedulerOutput.of(base, EMPTY_PLAN)
    for field in dataclasses.fields(SchedulerOutput):
        assert getattr(output, field.name) is getattr(base, field.name)


def test_the_plan_reaches_another_process():
    output = TTSchedulerOutput.of(SchedulerOutput.make_empty(), StepPlan.build(Phase.DECODE, [("a", 0, 4, 5, False)]))
    copy = pickle.loads(pickle.dumps(output))
    assert copy.plan.phase is Phase.DECODE
    assert copy.plan.starts.tolist() == [4]
