import pytest
from steps import decode, empty, new_request, prefill

from vllm_tt.batch.rows import Rows, RowsBroken, SlotTaken


@pytest.fixture
def rows():
    return Rows(4, [6], 32)


def table(rows):
    return rows.page_tables[0].ids.tolist()


def test_a_new_request_gets_its_row_and_pages(rows):
    rows.apply(prefill(("a", 2, 0, 3, False), new=[new_request("a", [1, 2, 3], [7, 9])]))
    assert table(rows)[2] == [7, 9, 0, 0, 0, 0]
    assert rows.holders[2].req_id == "a"
    assert rows.requests["a"].slot == 2
    rows.check()


def test_pages_are_appended_while_a_request_runs(rows):
    rows.apply(prefill(("a", 1, 0, 3, False), new=[new_request("a", [1, 2, 3], [7])]))
    rows.apply(decode(("a", 1, 3, 4, False), cached=[("a", [8])]))
    rows.apply(decode(("a", 1, 4, 5, False), cached=[("a", None)]))
    assert table(rows)[1] == [7, 8, 0, 0, 0, 0]


def test_a_finished_request_leaves_a_null_row_in_the_same_step(rows):
    rows.apply(prefill(("a", 0, 0, 3, False), new=[new_request("a", [1, 2, 3], [7, 8, 9])]))
    rows.apply(prefill(("b", 0, 0, 1, False), new=[new_request("b", [4], [5])], released=[0], finished=["a"]))
    assert table(rows)[0] == [5, 0, 0, 0, 0, 0]
    assert list(rows.requests) == ["b"]
    rows.check()


def test_a_preempted_request_keeps_its_state_and_gets_another_row(rows):
    rows.apply(prefill(("a", 0, 0, 2, False), new=[new_request("a", [1, 2], [7])]))
    state = rows.requests["a"]
    outputs = state.output_token_ids
    outputs.append(50)
    rows.apply(empty(released=[0]))
    assert (state.slot, state.epoch) == (-1, 1)
    rows.check()
    rows.apply(prefill(("a", 3, 0, 4, False), cached=[("a", [4, 5])], resumed={"a": [1, 2, 50, 51]}))
    assert state.slot == 3
    assert state.output_token_ids is outputs
    assert outputs == [50, 51]
    assert table(rows)[3] == [4, 5, 0, 0, 0, 0]
    rows.check()


def test_a_resumed_request_that_comes_as_new_is_replayed(rows):
    """The V2 runner's form of a resume: a known request among the new ones, with all its tokens."""
    rows.apply(prefill(("a", 0, 0, 2, False), new=[new_request("a", [1, 2], [7])]))
    rows.apply(empty(released=[0]))
    resumed = new_request("a", [1, 2], [8], prefill_token_ids=[1, 2, 50])
    rows.apply(prefill(("a", 1, 0, 3, False), new=[resumed]))
    assert rows.requests["a"].output_token_ids == [50]
    assert rows.requests["a"].slot == 1


def test_a_slot_still_held_is_never_given_away(rows):
    rows.apply(prefill(("a", 0, 0, 2, False), new=[new_request("a", [1, 2], [7])]))
    with pytest.raises(SlotTaken) as error:
        rows.apply(prefill(("b", 0, 0, 1, False), new=[new_request("b", [4], [5])]))
    assert str(error.value) == "Slot 0 was given to request 'b' while request 'a' still has it."


def test_an_abort_of_a_request_that_never_ran_is_harmless(rows):
    rows.apply(empty(finished=["never"]))
    rows.check()


def test_a_stale_page_is_found(rows):
    rows.page_tables[0].ids[1, 4] = 3
    with pytest.raises(RowsBroken) as error:
        rows.check()
    assert str(error.value) == "The worker's rows do not add up: a page table has pages past a row's own."
