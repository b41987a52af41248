import os
import random
import sys
import threading
from time import perf_counter

import pytest
from vllm.v1.outputs import ModelRunnerOutput

from vllm_tt.scheduler.record import StepRecord
from vllm_tt.telemetry import Counters
from vllm_tt.worker.async_steps import PendingStep, StepOutput, StepQueue


class Readings:
    """What was read and applied, in order; a handle is a number."""

    def __init__(self, fails=()):
        self.read, self.applied, self.fails = [], [], fails

    def __call__(self, handle):
        self.read.append(handle)
        if handle in self.fails:
            raise OSError(f"step {handle} is lost")
        return handle

    def step(self, number):
        def apply(output):
            self.applied.append(output)
            return ModelRunnerOutput(req_ids=[str(output)], req_id_to_index={str(output): 0})

        return PendingStep(number, apply)


def submitted(count, fails=()):
    readings = Readings(fails)
    queue = StepQueue(readings)
    steps = [readings.step(number) for number in range(count)]
    for step in steps:
        queue.submit(step)
    return readings, queue, steps


def test_asking_for_a_step_reads_those_before_it():
    readings, queue, steps = submitted(3)
    assert queue.result_of(steps[1]).req_ids == ["1"]
    assert (readings.read, readings.applied, len(queue)) == ([0, 1], [0, 1], 1)
    assert queue.result_of(steps[0]).req_ids == ["0"]
    assert StepOutput(queue, steps[2]).get_output().req_ids == ["2"]
    assert readings.read == [0, 1, 2]


def test_a_drain_leaves_nothing_and_loses_nothing():
    readings, queue, steps = submitted(2)
    queue.drain()
    queue.drain()
    assert (readings.applied, len(queue)) == ([0, 1], 0)
    assert [queue.result_of(step).req_ids for step in steps] == [["0"], ["1"]]


def test_a_step_says_when_its_tokens_were_there_and_not_when_it_is_asked_for():
    readings, queue, _ = submitted(0)
    record = StepRecord(counters=Counters())
    step = readings.step(0)
    step.record = record
    began = perf_counter()
    queue.submit(step)
    queue.drain()
    ended = perf_counter()
    StepOutput(queue, step).get_output()
    assert began < record.ended < ended


def test_what_went_wrong_is_raised_to_whoever_asks():
    readings, queue, steps = submitted(2, fails=[0])
    with pytest.raises(OSError, match="step 0 is lost"):
        queue.drain()
    with pytest.raises(OSError, match="step 0 is lost"):
        queue.result_of(steps[0])
    assert queue.result_of(steps[1]).req_ids == ["1"]
    assert readings.read == [0, 1]


def test_a_step_has_no_connector_output():
    _, queue, steps = submitted(1)
    assert StepOutput(queue, steps[0]).get_kv_connector_output() is None


def test_applying_waits_for_no_device():
    """While one thread waits for a step, another may change the rows."""
    at_the_device, finished = threading.Event(), threading.Event()

    def read(handle):
        at_the_device.set()
        assert finished.wait(10)
        return handle

    queue = StepQueue(read)
    step = Readings().step(0)
    queue.submit(step)
    thread = threading.Thread(target=queue.drain)
    thread.start()
    assert at_the_device.wait(10)
    with queue.applying:
        finished.set()
    thread.join(10)
    assert step.done


ROUNDS = int(os.environ.get("RACE_ROUNDS", "150"))
"""Of each pair of threads; the whole of them takes minutes."""


def race(points, ask):
    """Two threads end the same steps; ``points`` is the order in which they may pass their next line of ours."""
    readings, queue, steps = submitted(2)
    turns = iter(points)
    lock, current = threading.Condition(), [next(turns)]

    def pass_on():
        current[0] = next(turns, None)
        lock.notify_all()

    def tracer(name):
        def local(frame, event, argument):
            if event == "line":
                with lock:
                    # A thread that may not go on now waits for its turn, or until the other is stuck in a lock.
                    lock.wait_for(lambda: current[0] in (name, None), timeout=0.0005)
                    pass_on()
            return local

        return lambda frame, event, argument: local if frame.f_code.co_filename.endswith("async_steps.py") else None

    found = {}

    def run(name):
        sys.settrace(tracer(name))
        found[name] = ask[name](queue, steps)
        sys.settrace(None)

    threads = [threading.Thread(target=run, args=(name,)) for name in ask]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return readings, queue, steps


ASKS = (
    {"engine": lambda queue, steps: queue.drain(), "output": lambda queue, steps: queue.result_of(steps[0])},
    {"engine": lambda queue, steps: queue.drain(), "output": lambda queue, steps: queue.result_of(steps[1])},
    {
        "engine": lambda queue, steps: queue.result_of(steps[1]),
        "output": lambda queue, steps: queue.result_of(steps[0]),
    },
)


@pytest.mark.parametrize("ask", ASKS)
def test_two_threads_end_a_step_once_and_in_order(ask):
    rng = random.Random(4)
    for _ in range(ROUNDS):
        points = [rng.choice(("engine", "output")) for _ in range(60)]
        readings, queue, steps = race(points, ask)
        queue.drain()
        assert readings.read == readings.applied == [0, 1], points
        assert all(step.done for step in steps)
