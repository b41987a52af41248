"""Lines of a step log: those that are none are left out, counted and named, and never guessed."""

import json

import pytest

from vllm_tt.observe.steps import read

LINE = {
    "step": 7,
    "time": 1000.5,
    "phase": "decode",
    "ms": 500,
    "wait_ms": 400.5,
    "rows": [2, 1],
    "tokens": 3,
    "running": [2, 1],
    "waiting": [0, 0],
    "kv": [0.5, 0.25],
    "sampled": "device",
}

DAMAGED = {
    "cut off": '{"step":7,"time":10',
    "another log": "INFO 12:00 started",
    "bytes": "\x00\x00\x00",
    "a number": "7",
    "a list": "[]",
    "null": "null",
    "nested too deep": "[" * 100_000,
    "no phase": json.dumps({name: value for name, value in LINE.items() if name != "phase"}),
    "another phase": json.dumps(LINE | {"phase": "mixed"}),
    "a list for a phase": json.dumps(LINE | {"phase": ["decode"]}),
    "text for a time": json.dumps(LINE | {"time": "1000.5"}),
    "not a number": json.dumps(LINE | {"ms": float("nan")}),
    "infinite": json.dumps(LINE | {"ms": float("inf")}),
    "negative": json.dumps(LINE | {"ms": -1}),
    "too large for a float": json.dumps(LINE | {"step": 0}).replace('"ms": 500', '"ms": 1' + "0" * 400),
    "no lanes": json.dumps(LINE | {"rows": [], "running": [], "waiting": [], "kv": []}),
    "lanes that differ": json.dumps(LINE | {"kv": [0.5]}),
    "rows as text": json.dumps(LINE | {"rows": "21"}),
    "reasons as text": json.dumps(LINE | {"host": "logprobs"}),
    "reasons as numbers": json.dumps(LINE | {"host": [1]}),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_left_out(tmp_path, line):
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join([json.dumps(LINE), line, line, json.dumps(LINE | {"unknown": 1}), ""]))
    log = read(path)
    assert [step.step for step in log.steps] == [7, 7]
    assert (log.damaged, log.first_damaged) == (2, f"{path}:2")


def test_a_step_begins_its_milliseconds_before_its_time(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(json.dumps(LINE))
    (step,) = read(path).steps
    assert (step.start, step.ms, step.rows, step.host, step.drain) == (1000.0, 500, (2, 1), (), "")
