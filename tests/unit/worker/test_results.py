import numpy as np
import pytest
from steps import empty, new_request, prefill
from vllm.v1.outputs import LogprobsLists

from vllm_tt.batch.rows import Rows
from vllm_tt.sampling.host import SampledRows
from vllm_tt.worker.results import Report


@pytest.fixture
def prefilled():
    """Plan and rows of a prefill of three requests, the second an intermediate chunk."""
    output = prefill(
        ("a", 2, 0, 2, False),
        ("b", 0, 0, 2, True),
        ("c", 1, 0, 2, False),
        new=[new_request("a", [1, 2], [1]), new_request("b", [1, 2, 3], [2]), new_request("c", [1, 2], [3])],
    )
    rows = Rows(4, [2], 32)
    rows.apply(output)
    return output.plan, rows


def test_tokens_go_to_their_requests_and_slots(prefilled):
    plan, rows = prefilled
    sampled = SampledRows(tokens=np.array([40, 41], dtype=np.int32), logprobs=None)
    output = Report(plan, rows).apply(sampled)
    assert output.req_ids == ["a", "b", "c"]
    assert output.req_id_to_index == {"a": 0, "b": 1, "c": 2}
    assert output.sampled_token_ids == [[40], [], [41]]
    assert output.logprobs is None
    assert [rows.requests[r].output_token_ids for r in "abc"] == [[40], [], [41]]
    assert rows.last_token.tolist() == [0, 41, 40, 0]


def test_logprobs_are_found_past_a_row_without_a_token(prefilled):
    plan, rows = prefilled
    logprobs = LogprobsLists(np.array([[7], [8]]), np.array([[-0.5], [-0.6]]), np.array([1, 2]))
    sampled = SampledRows(tokens=np.array([7, 8], dtype=np.int32), logprobs=logprobs)
    output = Report(plan, rows).apply(sampled)
    index = output.req_id_to_index["c"]
    assert output.logprobs.slice_request(index, 1).logprob_token_ids.tolist() == [[8]]


def test_a_step_of_intermediate_chunks_yields_no_token(prefilled):
    _, rows = prefilled
    chunk = prefill(("b", 0, 2, 3, True)).plan
    assert Report(chunk, rows).apply(None).sampled_token_ids == [[]]


def test_a_request_that_lost_its_slot_is_reported_and_left_alone(prefilled):
    plan, rows = prefilled
    report = Report(plan, rows)
    rows.apply(empty(released=[1]))
    output = report.apply(SampledRows(tokens=np.array([40, 41], dtype=np.int32), logprobs=None))
    assert output.sampled_token_ids == [[40], [], [41]]
    assert [rows.requests[r].output_token_ids for r in "abc"] == [[40], [], []]
    assert rows.last_token.tolist() == [0, 0, 40, 0]
