import json

import pytest
from tools.simulate.trace import BadTrace, EmptyTrace, read_trace

GOOD = {"arrival": 0, "prompt": 5, "output": 2}
ENDING = (
    ' A line is an object such as {"arrival": 0.25, "prompt": 512, "output": 64}: seconds from the start and token '
    'counts; "prefix_group" (a name), "prefix" (how many tokens the group shares) and "priority" (lower goes first) '
    "may be added."
)
FAULTS = {
    "not JSON (Expecting value at column 1)": "arrival 3",
    "found [1]": "[1]",
    "unknown lenght, promt": json.dumps(GOOD | {"promt": 1, "lenght": 2}),
    "arrival is missing, not seconds of at least 0": '{"prompt": 5, "output": 2}',
    "arrival is -1, not seconds of at least 0": json.dumps(GOOD | {"arrival": -1}),
    "arrival is nan, not seconds of at least 0": '{"arrival": NaN, "prompt": 5, "output": 2}',
    "arrival is True, not seconds of at least 0": json.dumps(GOOD | {"arrival": True}),
    "prompt is 0, not a count of at least 1": json.dumps(GOOD | {"prompt": 0}),
    "output is 1.5, not a count of at least 1": json.dumps(GOOD | {"output": 1.5}),
    "output is missing, not a count of at least 1": '{"arrival": 0, "prompt": 5}',
    "prefix_group is 3, not a name": json.dumps(GOOD | {"prefix_group": 3, "prefix": 2}),
    "prefix without prefix_group": json.dumps(GOOD | {"prefix": 2}),
    "prefix is missing, not a count of at least 1": json.dumps(GOOD | {"prefix_group": "a"}),
    "priority is 'high', not an integer": json.dumps(GOOD | {"priority": "high"}),
}


@pytest.mark.parametrize("problem", FAULTS)
def test_a_fault_names_its_line(tmp_path, problem):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + FAULTS[problem] + "\n")
    with pytest.raises(BadTrace) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}, line 3: {problem}.{ENDING}"


def test_a_trace_without_requests(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n")
    with pytest.raises(EmptyTrace) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path} has no requests in it."


def test_jobs_come_by_arrival(tmp_path, job):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"arrival": 1.5, "prompt": 10, "output": 3, "priority": -1},
        {"arrival": 0, "prompt": 8, "output": 2, "prefix_group": "system", "prefix": 20},
        {"arrival": 0.25, "prompt": 9, "output": 1, "prefix_group": "tools", "prefix": 4},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read_trace(path) == [
        job("r1", 0, 8, 2, prefix_group=0, prefix_tokens=8),
        job("r2", 0.25, 9, 1, prefix_group=1, prefix_tokens=4),
        job("r0", 1.5, 10, 3, priority=-1),
    ]
