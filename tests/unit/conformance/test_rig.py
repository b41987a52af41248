import pytest
import torch
from fake_adapter import FakeAdapter

from vllm_tt.conformance.rig import BadReturn, Chunk, Rig, Sizes, Token
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
    ("value", "sampled", "expected", "found"),
    [
        (torch.zeros(4, 32), False, "host logits [4, 1, 32] or [4, tokens, 32]", "float32 [4, 32]"),
        (torch.zeros(3, 1, 32), False, "host logits [4, 1, 32] or [4, tokens, 32]", "float32 [3, 1, 32]"),
        (torch.zeros(4, 1, 16), False, "host logits [4, 1, 32] or [4, tokens, 32]", "float32 [4, 1, 16]"),
        (None, False, "host logits [4, 1, 32] or [4, tokens, 32]", "None"),
        ("handle", False, "host logits [4, 1, 32] or [4, tokens, 32]", "a str"),
        (torch.zeros(4, 1, 32), True, "tokens [4] or [4, 1]", "float32 [4, 1, 32]"),
    ],
)
def test_what_is_no_result(value, sampled, expected, found):
    rig = Rig(Returns(value), None, SIZES, Capabilities())
    with pytest.raises(BadReturn) as caught:
        rig.decode([Token(slot=0, token=1, position=0, pages=[1])], sampled=sampled)
    assert str(caught.value) == f"decode_forward() must return {expected}, got {found}."


@pytest.mark.parametrize(
    "value", [torch.tensor([1, 2, 3, 4]), torch.tensor([[1], [2], [3], [4]]), (torch.arange(1, 5), None)]
)
def test_forms_of_sampled_tokens(value):
    rig = Rig(Returns(value), None, SIZES, Capabilities())
    found = rig.decode([Token(slot=0, token=1, position=0, pages=[1])], sampled=True, goes_on=True)
    assert found.tolist() == [1, 2, 3, 4]
    (call,) = rig.adapter.called("decode_forward")
    assert (call["reload_inputs"], call["reload_sampling_params"]) == (False, False)
    assert call["sampling_params"] == DeviceSamplingParams.greedy(4)


def test_greedy_rows_have_a_value_for_each_row():
    greedy = DeviceSamplingParams.greedy(2)
    assert (greedy.temperature, greedy.top_k, greedy.seed) == ([0.0, 0.0], [1, 1], [None, None])
