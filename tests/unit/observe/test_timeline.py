"""Blocks: what is joined, what is cut out, and that pages of long logs stay small."""

import json
import re

import pytest

from vllm_tt.observe.page import MOST_BYTES, write_page
from vllm_tt.observe.steps import Log, Step
from vllm_tt.observe.timeline import PAUSE_SHOWN_S, Kind, timeline


def step(number, start, **fields):
    decode = {"phase": "decode", "rows": (3,), "tokens": 3, "running": (3,), "waiting": (0,), "kv": (0.5,)}
    return Step(**{"step": number, "start": start, "ms": 10.0, "wait_ms": 8.0, "sampled": "device"} | decode | fields)


def log(*steps):
    return Log(name="steps.jsonl", steps=steps, damaged=0)


def long_log(count):
    kinds = [{}, {"host": ("logprobs",)}, {"phase": "prefill", "stalled": 2, "requests": ("cmpl-" + "x" * 40,) * 3}]
    return log(*(step(number, 1e9 + number / 100, **kinds[number // 3 % 3]) for number in range(count)))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, Kind.DECODE),
        ({"host": ("logprobs",)}, Kind.DECODE_HOST),
        ({"phase": "prefill"}, Kind.PREFILL),
        ({"phase": "prefill", "stalled": 1}, Kind.STALL),
    ],
    ids=["decode", "on the host", "prefill", "stall"],
)
def test_a_step_is_a_block(fields, kind):
    drawn = timeline([log(step(1, 1000.0, **fields))], most=10)
    (block,) = drawn.tracks[0].blocks
    assert (block.kind, block.start, block.steps, block.rows) == (kind, 0.0, 1, (3.0,))
    assert block.seconds == pytest.approx(0.01)
    assert (drawn.joined, drawn.steps, drawn.pauses) == (1, 1, ())


def test_neighbours_are_drawn_together_until_there_are_few_enough():
    steps = [step(number, 1000 + number / 100) for number in range(7)]
    steps.insert(2, step(90, 1000.07, phase="prefill", requests=("a",), ms=30.0))
    drawn = timeline([log(*steps)], most=3)
    blocks = drawn.tracks[0].blocks
    assert [(block.kind, block.first, block.steps, block.tokens) for block in blocks] == [
        (Kind.DECODE, 0, 3, 9),
        (Kind.PREFILL, 90, 1, 3),
        (Kind.DECODE, 3, 4, 12),
    ]
    assert [(block.start, block.seconds) for block in blocks[:2]] == [
        pytest.approx((0.0, 0.03)),
        pytest.approx((0.03, 0.03)),
    ]
    assert drawn.joined == 4


def test_times_without_steps_are_cut_out():
    steps = [step(1, 1000.0), step(2, 1100.0), step(3, 1100.01), step(4, 1200.0)]
    drawn = timeline([log(*steps)], most=10)
    starts = [block.start for block in drawn.tracks[0].blocks]
    shown = PAUSE_SHOWN_S + 0.01
    assert starts == pytest.approx([0.0, shown, shown + 0.01, 2 * shown + 0.01])
    assert [pause.start for pause in drawn.pauses] == pytest.approx([0.01, shown + 0.02])
    assert [pause.seconds for pause in drawn.pauses] == pytest.approx([99.99, 99.98])


def test_two_engines_share_an_axis():
    drawn = timeline([log(step(1, 1000.0)), log(step(1, 1001.0))], most=10)
    assert [track.blocks[0].start for track in drawn.tracks] == [0.0, 1.0]
    assert drawn.seconds == pytest.approx(1.01)


def test_the_page_of_a_long_log_is_thinned(tmp_path):
    path = tmp_path / "steps.html"
    drawn = write_page([long_log(60_000)], [], path)
    assert drawn.joined > 1
    assert path.stat().st_size < MOST_BYTES + 20_000
    data = json.loads(re.search(r"^const data = (.*);$", path.read_text(), re.MULTILINE)[1])
    assert (data["steps"], data["joined"]) == (60_000, drawn.joined)
    assert sum(block[4] for block in data["tracks"][0]["blocks"]) == 60_000


def test_names_in_a_page_are_text(tmp_path):
    path = tmp_path / "steps.html"
    name = "</script><script>alert(1)</script>@DATA@"
    evil = Log(name=name, steps=(step(1, 1000.0, phase="prefill", requests=(name,)),), damaged=0)
    write_page([evil], [], path)
    text = path.read_text()
    assert text.count("</script>") == 1
    assert "alert(1)" in text
