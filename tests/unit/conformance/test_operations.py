from types import ModuleType

import pytest
import torch

from vllm_tt.conformance.operations import watch


class Operation:
    """As the library's: called by way of its class."""

    def __init__(self, name, function):
        self.python_fully_qualified_name = name
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class SlowOperation(Operation):
    pass


def fails(*_args, **_kwargs):
    raise RuntimeError("TT_FATAL")


@pytest.fixture
def ttnn():
    library = ModuleType("ttnn")
    library.decorators = ModuleType("ttnn.decorators")
    library.decorators.FastOperation, library.decorators.Operation = Operation, SlowOperation
    library.add = Operation("ttnn.add", lambda a, b: a + b)
    library.twice = Operation("ttnn.twice", lambda a: library.add(a, a))
    library.from_torch = Operation("ttnn.from_torch", lambda a: a)
    library.fail = Operation("ttnn.fail", fails)
    library.outer = Operation("ttnn.outer", lambda *args, **kwargs: library.fail(1))
    return library


def test_operations_are_counted_but_for_those_inside_others(ttnn):
    with watch(ttnn) as seen:
        assert ttnn.twice(ttnn.from_torch(3)) == 6
        assert ttnn.add(1, 1) == 2
    ttnn.add(1, 1)
    assert seen.calls == {"ttnn.from_torch": 1, "ttnn.twice": 1, "ttnn.add": 1}
    assert seen.computed == 2


def test_the_call_that_the_adapter_made_is_the_one_that_failed(ttnn):
    with watch(ttnn) as seen, pytest.raises(RuntimeError) as caught:
        ttnn.outer(torch.zeros(2, 3), [torch.zeros(1)], layout="x" * 80, epsilon=1e-5)
    assert (
        seen.failure(caught.value) == f"ttnn.outer([2, 3] float32, [[1] float32], layout='{'x' * 56}..., epsilon=1e-05)"
    )
    wrapped = ValueError("the adapter's own")
    wrapped.__cause__ = caught.value
    assert seen.failure(wrapped) == seen.failure(caught.value)


def test_an_error_of_the_adapters_own_belongs_to_no_operation(ttnn):
    with watch(ttnn) as seen:
        with pytest.raises(RuntimeError):
            ttnn.fail()
        assert seen.failure(ValueError("later")) is None


def test_the_library_is_as_before_afterwards(ttnn):
    before = Operation.__call__, SlowOperation.__call__
    with watch(ttnn), pytest.raises(RuntimeError):
        ttnn.fail()
    assert (Operation.__call__, SlowOperation.__call__) == before
