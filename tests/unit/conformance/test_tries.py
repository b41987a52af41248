from dataclasses import replace

import pytest
from fake_adapter import FakeAdapter

from vllm_tt.conformance.rig import Rig, Sizes
from vllm_tt.conformance.tries import Tries
from vllm_tt.contract import Capabilities

SIZES = Sizes(slots=4, page_size=8, pages=9, max_seq_len=24, vocab_size=32, kv_shape=(9, 1, 8, 4), layers=1)
ALL = {
    "supports_async_decode": True,
    "supports_sample_on_device": True,
    "supports_device_seeds": True,
    "supports_row_logits": True,
    "max_device_top_k": 8,
    "max_device_logprobs": 5,
}
NONE = {"supports_sample_on_device": True, "supports_device_penalties": False, "max_device_top_k": 1}


def tries(declared, contract=1, lanes=1):
    sizes = replace(SIZES, lanes=lanes)
    rig = Rig(FakeAdapter(capabilities=declared, contract=contract), "kv", sizes, Capabilities(**declared))
    return Tries(rig), rig.adapter


def test_plain_calls():
    made, adapter = tries({})
    assert made.prefill() == "2 prompts of 8 tokens and more give [2, 32]"
    assert made.decode() == "2 rows and 2 idle slots give [4, 32]"
    assert made.decode(split=True) == made.decode()
    assert adapter.called("decode_forward")[0]["start_pos"].tolist() == [8, 9, -1, -1]


def test_lanes_have_the_same_page_ids_and_may_be_empty():
    made, adapter = tries({"supports_lanes": True}, lanes=2)
    assert made.lanes() == "2 lanes of 2 slots, and all but one lane empty, give [4, 32]"
    assert [call["empty_slots"] for call in adapter.called("prefill_forward")] == [[0, 2]]
    both, one = adapter.called("decode_forward")
    assert both["page_table"].tolist() == [[1, 2, 0], [0, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert [call["start_pos"].tolist() for call in (both, one)] == [[8, -1, 8, -1], [-1, -1, 9, -1]]


@pytest.mark.parametrize("contract", [None, 1])
def test_sampled_calls_with_all_that_is_declared(contract):
    made, adapter = tries(ALL, contract)
    assert made.sample() == (
        "tokens after a prefill, a decode, and one that goes on from it; with temperature, top_k, top_p, seed, "
        "presence_penalty, frequency_penalty, repetition_penalty, enable_log_probs, num_logprobs"
    )
    *plain, first, second = adapter.called("decode_forward")
    assert [call["sampling_params"].top_k for call in (*plain, first)] == [[1] * 4, [1] * 4, [8, 1, 1, 1]]
    assert (first["logits_rows"], first["prompt_tokens"].tolist()) == ([1], [[1], [-1], [-1], [-1]])
    assert (first["sampling_params"].seed[0], first["sampling_params"].num_logprobs[0]) == (1, 5)
    assert second["start_pos"].tolist() == [9, 10, -1, -1]
    assert adapter.called("prefill_forward")[-1]["logits_rows"] == [1]


def test_sampled_calls_of_a_device_that_takes_the_likeliest_token_alone():
    made, adapter = tries(NONE)
    assert made.sample().endswith("; with nothing beside")
    assert not any("logits_rows" in call or "prompt_tokens" in call for _, call in adapter.calls)
