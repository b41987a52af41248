"""The coordinator against vLLM's own scheduler interface, as it is installed."""

import inspect

import pytest
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_tt.scheduler.lanes import TTLaneCoordinator

NEWER = {"has_request", "get_kv_cache_usage"}
"""Methods of the interface in later releases."""
OURS = {"check", "slots_held", "requests", "lanes", "rebind", "figures", "connector", "ec_connector"}

METHODS = sorted(
    name
    for name, value in vars(SchedulerInterface).items()
    if callable(value) and not name.startswith("_") and name != "__init__"
)


def shape(function):
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_interface_has_its_signature(name):
    mine = inspect.signature(getattr(TTLaneCoordinator, name))
    if any(one.kind is one.VAR_KEYWORD for one in mine.parameters.values()):
        return
    assert shape(getattr(TTLaneCoordinator, name)) == shape(getattr(SchedulerInterface, name))


def test_the_pause_state_is_a_property():
    assert isinstance(inspect.getattr_static(TTLaneCoordinator, "pause_state"), property)


def test_nothing_abstract_is_left():
    assert TTLaneCoordinator.__abstractmethods__ == frozenset()


def test_it_offers_nothing_else():
    public = {name for name in vars(TTLaneCoordinator) if not name.startswith("_")}
    assert public - set(dir(SchedulerInterface)) - NEWER <= OURS


@pytest.mark.parametrize("name", ["schedule", "update_from_output", "finish_requests", "reset_prefix_cache"])
def test_vllms_own_scheduler_is_called_the_same_way(name):
    assert shape(getattr(TTLaneCoordinator, name)) == shape(getattr(Scheduler, name))
