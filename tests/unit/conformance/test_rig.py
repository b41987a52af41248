from dataclasses import replace

import pytest
import torch
from fake_adapter import FakeAdapter

from vllm_tt.conformance.rig import Chunk, Rig, Sizes, Token
from vllm_tt.conformance.sampled import Ask, BadReturn
from vllm_tt.contract import Capabilities, DeviceSamplingParams

SIZES = Sizes(slots=4, page_size=8, pages=9, max_seq_len=24, vocab_size=32, kv_shape=(9, 1, 8, 4), layers=1)


@pytest.fixture
def adapter():
    return FakeAdapter()


@pytest.fixture
def rig(adapter):
    return Rig(adapter, "kv cache", SIZES, Capabilities())


def test_prefill_is_called_as_the_worker_does(rig, adapter):
    rows = [
        Chunk(slot=2, tokens=[5, 6, 7], start=0, end=3, pages=[4]),
        Chunk(slot=0, tokens=list(range(10)), start=8, end=10, pages=[3, 7, 8]),
    ]
    assert rig.prefill(rows).argmax(-1).tolist() == [8, 10]
    (call,) = adapter.called("prefill_forward")
    assert call["tokens"].tolist() == [[5, 6, 7, *[0] * 7], list(range(10))]
    assert call["page_table"].tolist() == [[4, 0, 0], [3, 7, 0]]
    assert (call["prompt_lens"].tolist(), call["start_pos"].tolist(), call["empty_slots"]) == ([3, 10], [0, 8], [2, 0])
    assert {str(call["tokens"].dtype), str(call["page_table"].dtype)} == {"torch.int32"}


def test_decode_is_called_as_the_worker_does(rig, adapter):
    found = rig.decode([Token(slot=2, token=9, position=8, pages=[5, 1])])
    assert (tuple(found.shape), int(found[2].argmax())) == ((4, 32), 10)
    (call,) = adapter.called("decode_forward")
    assert call["tokens"].tolist() == [[0], [0], [9], [0]]
    assert call["start_pos"].tolist() == [-1, -1, 8, -1]
    assert call["page_table"].tolist() == [[0, 0, 0], [0, 0, 0], [5, 1, 0], [0, 0, 0]]
    assert call["read_from_device"] is True
    assert "reset_batch" not in call


def test_warm_up_is_called_as_the_worker_does(rig, adapter):
    rig.warm_up(trace=True)
    (prefill,), (decode,) = adapter.called("warmup_model_prefill"), adapter.called("warmup_model_decode")
    assert prefill == {"enable_trace": True, "kv_cache": "kv cache", "can_sample_on_device": False}
    assert (decode["max_batch_size"], decode["num_blocks"]) == (4, 3)


TOKEN = Token(slot=0, token=1, position=0, pages=[1])


class Returns(FakeAdapter):
    """Gives what the test wants, whatever is asked."""

    decode_input_update_contract = 1

    def __init__(self, value):
        super().__init__()
        self.value = value

    def decode_forward(self, **kwargs):
        self._record("decode_forward", kwargs)
        return self.value


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.zeros(4, 32), "float32 [4, 32]"),
        (torch.zeros(3, 1, 32), "float32 [3, 1, 32]"),
        (torch.zeros(4, 1, 16), "float32 [4, 1, 16]"),
        (None, "None"),
        ("handle", "a str"),
    ],
)
def test_what_are_no_logits(value, found):
    rig = Rig(Returns(value), None, SIZES, Capabilities())
    with pytest.raises(BadReturn) as caught:
        rig.decode([TOKEN])
    expected = "host logits [4, 1, 32] or [4, tokens, 32]"
    assert str(caught.value) == f"decode_forward() must return {expected}, got {found}."


def sampling_rig(contract):
    return Rig(
        FakeAdapter(capabilities={"supports_sample_on_device": True}, contract=contract), None, SIZES, Capabilities()
    )


def commands(call):
    return [name for name, value in call.items() if name.startswith("re") and name != "read_from_device" and value]


def test_a_sampled_decode_is_told_what_to_load():
    rig, ask = sampling_rig(1), Ask.greedy(4)
    assert rig.sample([TOKEN], ask).tokens[0] == 2
    late = Token(slot=0, token=0, position=1, pages=[1], late=True)
    assert rig.sample([late], ask, goes_on=True).tokens[0] == 3
    grown = Token(slot=0, token=0, position=8, pages=[1, 2], late=True)
    assert rig.sample([grown], ask, goes_on=True).tokens[0] == 4
    rig.decode([TOKEN])
    first, second, third, plain = rig.adapter.called("decode_forward")
    assert commands(first) == ["reload_inputs", "reload_sampling_params", "reset_sampling_state"]
    assert (commands(second), commands(third), commands(plain)) == ([], ["reload_page_table"], ["reload_inputs"])
    assert (second["tokens"][0].item(), second["start_pos"].tolist()) == (0, [0, -1, -1, -1])
    assert third["page_table"][0].tolist() == [1, 2, 0]
    assert first["sampling_params"] == DeviceSamplingParams.greedy(4)


def test_without_commands_new_pages_come_with_everything():
    rig, ask = sampling_rig(None), Ask.greedy(4)
    rig.sample([TOKEN], ask)
    grown = Token(slot=0, token=0, position=8, pages=[1, 2])
    assert rig.can_go_on([TOKEN])
    assert not rig.can_go_on([grown])
    assert sampling_rig(1).can_go_on([grown])
    rig.sample([TOKEN], ask, goes_on=True)
    assert [call["reset_batch"] for call in rig.adapter.called("decode_forward")] == [True, False]


def test_two_steps_can_be_unread():
    rig, ask = sampling_rig(1), Ask.greedy(4)
    first = rig.submit([TOKEN], ask)
    second = rig.submit([TOKEN], ask, goes_on=True)
    assert [rig.finish(step).tokens[0] for step in (first, second)] == [2, 3]
    assert [call["read_from_device"] for call in rig.adapter.called("decode_forward")] == [False, False]


def test_a_sampled_prefill_says_nothing_of_histories():
    rig = sampling_rig(1)
    ask = Ask(params=DeviceSamplingParams.greedy(1), prompts={0: [1]}, outputs={0: [2]})
    assert rig.sample_prefill([Chunk(slot=2, tokens=[5, 6], start=0, end=2, pages=[4])], ask).tokens == [7]


def test_rotary_deltas_that_a_prefill_returns_come_back_by_slot():
    class Turns(FakeAdapter):
        def prefill_forward(self, **kwargs):
            return super().prefill_forward(**kwargs), [-3]

    rig = Rig(Turns(), None, replace(SIZES, request_rope=True), Capabilities())
    rig.prefill([Chunk(slot=2, tokens=[5, 6], start=0, end=2, pages=[4])])
    rig.decode([TOKEN])
    assert rig.adapter.called("decode_forward")[0]["rope_deltas_all_users"] == [0, 0, -3, 0]
