"""Lanes agree on a phase; a lane here is a script of what it wants and what its passes schedule."""

import pytest
from steps import new_request
from vllm.v1.core.sched.output import SchedulerOutput

from vllm_tt.scheduler.interleave import DecodeInterleave
from vllm_tt.scheduler.plan import Phase
from vllm_tt.scheduler.step import Demand, MixedStep, schedule_step


class ScriptedLane:
    def __init__(self, prefill=(), decode=(), *, demand=None, finished=(), preempted=(), released=((), ())):
        """``prefill`` and ``decode``: the rows that such a pass schedules."""
        self.rows = {Phase.PREFILL: list(prefill), Phase.DECODE: list(decode), Phase.EMPTY: []}
        self.wants = demand or Demand(prefill=bool(prefill), decode=bool(decode))
        self.finished, self.preempted = set(finished), set(preempted)
        self.released = list(released)
        self.passes = []

    def demand(self):
        return self.wants

    def run(self, phase, demand, *, throttle):
        assert demand is self.wants
        self.passes.append(phase.value)
        output = SchedulerOutput.make_empty()
        output.finished_req_ids, self.finished = self.finished, set()
        output.preempted_req_ids, self.preempted = self.preempted or None, set()
        output.num_scheduled_tokens = {row[0]: row[3] - row[2] for row in self.rows[phase]}
        output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
        output.scheduled_new_reqs = [new_request(row[0], [1], [1]) for row in self.rows[phase] if row[2] == 0]
        return output

    def release(self):
        return self.released.pop(0) if self.released else ()

    def plan_rows(self, output):
        rows = [row for rows in self.rows.values() for row in rows]
        return [row for row in rows if row[0] in output.num_scheduled_tokens]


def run(*lanes, interleave=None):
    always_prefill = DecodeInterleave(enabled=False, prefill_steps=1, decode_steps=1)
    return schedule_step(lanes, interleave or always_prefill, throttle=False)


PROMPT, OTHER = ("a", 0, 0, 5, False), ("b", 4, 0, 3, True)
TOKEN, LATER = ("c", 1, 7, 8, False), ("d", 5, 9, 10, False)


def test_a_prompt_in_one_lane_makes_it_a_prefill_in_all():
    first, second = ScriptedLane(prefill=[PROMPT], decode=[TOKEN]), ScriptedLane(decode=[LATER])
    output = run(first, second)
    assert (first.passes, second.passes) == (["prefill"], ["prefill"])
    assert (output.plan.phase, output.plan.req_ids) == (Phase.PREFILL, ("a",))
    assert [part.total_num_scheduled_tokens for part in output.lanes] == [5, 0]
    assert output.total_num_scheduled_tokens == 5


def test_prefill_rows_keep_each_lanes_order_and_decode_rows_are_those_of_the_slots():
    output = run(ScriptedLane(prefill=[OTHER]), ScriptedLane(prefill=[PROMPT]))
    assert output.plan.req_ids == ("b", "a")
    assert output.plan.intermediate.tolist() == [True, False]
    output = run(ScriptedLane(decode=[LATER]), ScriptedLane(decode=[TOKEN]))
    assert output.plan.slots.tolist() == [1, 5]


def test_a_prefill_that_admits_nothing_gives_way_to_a_decode_and_loses_nothing():
    waits = ScriptedLane(demand=Demand(prefill=True, decode=False), finished=["x"])
    decodes = ScriptedLane(decode=[TOKEN], finished=["y"])
    output = run(waits, decodes)
    assert (waits.passes, decodes.passes) == (["prefill", "decode"], ["prefill", "decode"])
    assert (output.plan.phase, output.plan.req_ids) == (Phase.DECODE, ("c",))
    assert output.finished_req_ids == {"x", "y"}
    assert [part.finished_req_ids for part in output.lanes] == [{"x"}, {"y"}]


def test_one_interleave_policy_bounds_the_waits_of_all_lanes():
    policy = DecodeInterleave(enabled=True, prefill_steps=2, decode_steps=1)
    first, second = ScriptedLane(prefill=[PROMPT]), ScriptedLane(decode=[LATER])
    phases = [run(first, second, interleave=policy).plan.phase.value[0] for _ in range(6)]
    assert "".join(phases) == "ppdppd"


def test_nothing_to_do_is_an_empty_step():
    output = run(ScriptedLane(finished=["x"]), ScriptedLane())
    assert (output.plan.phase, output.finished_req_ids) == (Phase.EMPTY, {"x"})


def test_slots_that_a_pass_gave_back_are_in_the_same_plan():
    preempts = ScriptedLane(decode=[TOKEN], preempted=["x"], released=[(2,), (0,)])
    output = run(preempts, ScriptedLane(decode=[LATER], released=[(6,), ()]))
    assert output.plan.released == (2, 6, 0)


@pytest.mark.parametrize("row", [("a", 0, 3, 5, False), ("a", 0, 3, 4, True)])
def test_a_decode_step_has_one_last_token_a_row(row):
    with pytest.raises(MixedStep) as error:
        run(ScriptedLane(decode=[row, TOKEN]))
    assert str(error.value) == "A decode step scheduled requests of the other phase: a, c."
