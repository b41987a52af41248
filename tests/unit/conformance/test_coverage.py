from dataclasses import replace

import pytest
from fake_adapter import FakeAdapter

from vllm_tt.conformance.coverage import Step, emitted, programs
from vllm_tt.conformance.rig import Rig, Sizes
from vllm_tt.contract import Capabilities

SIZES = Sizes(slots=4, page_size=32, pages=40, max_seq_len=100, vocab_size=32, kv_shape=(40, 1, 32, 4), layers=1)


def rig(**declared):
    return Rig(FakeAdapter(capabilities=declared), "kv cache", SIZES, Capabilities(**declared))


def test_every_boundary_is_met_shortest_first():
    steps = [step for step in emitted(rig()) if step.rows == 1 and step.start is not None]
    assert [step.end for step in steps] == [1, 2, 16, 17, 31, 32, 33, 64, 65, 99, 100]
    assert {(step.start, step.sampled) for step in steps} == {(0, False)}


def test_batches_of_two_and_of_all_slots():
    assert [(step.rows, step.end) for step in emitted(rig()) if step.rows > 1] == [(2, 33), (4, 33)]


@pytest.mark.parametrize("declared", ["supports_chunked_prefill", "supports_prefix_caching"])
def test_prompts_that_begin_in_their_middle(declared):
    later = [(step.start, step.end) for step in emitted(rig(**{declared: True})) if step.start]
    assert later == [(32, 33), (32, 64), (64, 65), (96, 99), (96, 100)]


def test_sampling_on_the_device_is_tried_beside_the_hosts():
    both = list(emitted(rig(supports_sample_on_device=True)))
    plain = [step for step in both if not step.sampled]
    assert [replace(step, sampled=True) for step in plain] == [step for step in both if step.sampled]


BOTH = {"supports_chunked_prefill": True, "supports_sample_on_device": True}


@pytest.mark.parametrize("step", list(emitted(rig(**BOTH))), ids=str)
def test_steps_can_be_run(step):
    made = rig(**BOTH)
    step.run(made)
    if step.start is None:
        assert made.adapter.called("decode_forward")[-1]["start_pos"].tolist() == [32, -1, -1, -1]
        return
    call = made.adapter.called("prefill_forward")[-1]
    assert (call["start_pos"].tolist(), call["prompt_lens"].tolist()) == (
        [step.start] * step.rows,
        [step.end] * step.rows,
    )
    pages = call["page_table"][call["page_table"] > 0].tolist()
    assert len(set(pages)) == len(pages)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step(rows=1, start=0, end=1), "a prefill of 1 row, 1 token"),
        (Step(rows=2, start=32, end=40), "a prefill of 2 rows, tokens 32 to 40"),
        (Step(rows=4, end=9, sampled=True), "a decode of 4 rows at position 8, sampled on the device"),
    ],
)
def test_a_step_reads_as_a_phrase(step, text):
    assert str(step) == text


class Mesh:
    def __init__(self, count, *parts):
        self.count, self.parts = count, parts

    def num_program_cache_entries(self):
        return self.count

    def get_submeshes(self):
        return self.parts


def test_programs_of_submeshes_count():
    assert programs(Mesh(1, Mesh(2, Mesh(4)), Mesh(8))) == 15
