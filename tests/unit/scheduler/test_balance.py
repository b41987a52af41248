"""Which waiting requests change lanes: by a script of lanes, and with vLLM's schedulers on a simulated device."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from tools.simulate.device import DeviceModel
from tools.simulate.run import simulate
from tools.simulate.server import Server, make_requests, make_scheduler
from tools.simulate.workload import NS_PER_S, Job
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from vllm_tt.scheduler.balance import rebind


@dataclass(eq=False)
class ScriptedLane:
    """Slots, pages for so many requests, and the arrival times of those that wait."""

    name: str
    spare: int = 0
    waiting: list = field(default_factory=list)
    backlog: bool = False
    room: int = 100

    def has_backlog(self):
        return self.backlog

    def next_unstarted(self):
        return min(self.waiting, default=None, key=lambda request: request.arrival_time)

    def spare_slots(self):
        return self.spare - len(self.waiting)

    def has_room_for(self, request):
        return len(self.waiting) < self.room

    def withdraw(self, request):
        self.waiting.remove(request)

    def accept(self, request):
        self.waiting.append(request)


def full(name, *arrivals):
    return ScriptedLane(name, waiting=[SimpleNamespace(arrival_time=time) for time in arrivals], backlog=True)


def free(name, spare, **more):
    return ScriptedLane(name, spare=spare, **more)


MOVES = {
    "nothing waits": ([free("a", 2), free("b", 8)], []),
    "all are full": ([full("a", 1, 2), full("b", 3)], []),
    "the longest waiting first, to the emptiest": (
        [full("a", 5, 1), full("b", 3), free("c", 1), free("d", 2)],
        [(1, "d"), (3, "c"), (5, "d")],
    ),
    "as many as have slots": ([full("a", 1, 2, 3), free("b", 2)], [(1, "b"), (2, "b")]),
    "none to a lane without pages": ([full("a", 1), free("b", 4, room=0), free("c", 1)], [(1, "c")]),
    "none where no lane has pages": ([full("a", 1), free("b", 4, room=0)], []),
    "none to a lane whose slots its own take": (
        [full("a", 1), free("b", 1, waiting=[SimpleNamespace(arrival_time=9)])],
        [],
    ),
    "none that has started": ([ScriptedLane("a", backlog=True), free("b", 1)], []),
}


@pytest.mark.parametrize("case", MOVES)
def test_who_moves_where(case):
    lanes, expected = MOVES[case]
    assert [(request.arrival_time, lane.name) for request, lane in rebind(lanes)] == expected


SMALL = {"lanes": 2, "max_num_seqs": 1, "max_model_len": 256, "max_num_batched_tokens": 64, "kv_tokens": 256}


def job(name, arrival, prompt, output):
    return Job(name=name, arrival_ns=round(arrival * NS_PER_S), prompt_tokens=prompt, output_tokens=output)


@pytest.fixture
def two_lanes():
    """A coordinator of two lanes of one slot, and what adds a job to it."""
    server = Server(**SMALL)
    coordinator = make_scheduler(server)
    make = make_requests(server, coordinator)

    def add(*jobs):
        requests = [make(number, one) for number, one in enumerate(jobs)]
        for request in requests:
            coordinator.add_request(request)
        return requests

    return coordinator, add


def waiting_in(coordinator):
    return [[request.request_id for request in lane.waiting] for lane in coordinator.lanes]


def finish_step(coordinator):
    """Schedule a step and give every row a token; returns its plan."""
    output = coordinator.schedule()
    names = output.plan.req_ids
    tokens = [[] if intermediate else [1] for intermediate in output.plan.intermediate.tolist()]
    results = ModelRunnerOutput(
        req_ids=list(names),
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=tokens,
    )
    coordinator.update_from_output(output, results)
    coordinator.check()
    return output.plan


def test_a_request_goes_where_a_slot_gets_free(two_lanes):
    coordinator, add = two_lanes
    *_, moved = add(job("long", 0, 16, 50), job("short", 1, 16, 1), job("bound", 2, 16, 5))
    assert waiting_in(coordinator) == [["long", "bound"], ["short"]]
    finish_step(coordinator)
    coordinator.lanes[1].log_stats = True
    coordinator.rebind()
    assert waiting_in(coordinator) == [[], ["bound"]]
    assert not moved.events  # it has been reported as queued by its first lane
    coordinator.lanes[1].log_stats = False
    plan = finish_step(coordinator)
    assert plan.req_ids == ("bound",)
    assert plan.slots.tolist() == [1]
    assert [len(lane.requests) for lane in coordinator.lanes] == [1, 1]
    coordinator.finish_requests("bound", RequestStatus.FINISHED_ABORTED)
    assert [len(lane.requests) for lane in coordinator.lanes] == [1, 0]


def test_nobody_moves_while_scheduling_is_paused(two_lanes):
    coordinator, add = two_lanes
    add(job("long", 0, 16, 50), job("short", 1, 16, 1), job("bound", 2, 16, 5))
    finish_step(coordinator)
    coordinator.set_pause_state(PauseState.PAUSED_NEW)
    finish_step(coordinator)
    assert waiting_in(coordinator) == [["bound"], []]


def serve(jobs, **settings):
    return simulate(jobs, Server(**SMALL | settings), DeviceModel()).report


def test_a_preempted_request_keeps_its_lane():
    """Two requests grow until their lane's pages hold only one of them, while the other lane is empty."""
    jobs = [job("first", 0, 100, 150), job("other", 0, 16, 1), job("second", 0, 100, 150)]
    report = serve(jobs, max_num_seqs=2, max_num_batched_tokens=256)
    assert report.preemptions == 1
    assert report.e2e_ms.max > 1500 + 1000  # the second goes on when the first has its 150 tokens


def test_requests_wait_for_pages_only_where_no_lane_has_them():
    """Two long prompts in one lane do not fit together; the other lane has room when its request ends."""
    jobs = [job("long", 0, 200, 50), job("short", 0, 16, 4), job("next", 0.001, 200, 50)]
    bound = serve(jobs, max_num_seqs=2, rebinding=False).e2e_ms.max
    assert serve(jobs, max_num_seqs=2).e2e_ms.max < 0.8 * bound
