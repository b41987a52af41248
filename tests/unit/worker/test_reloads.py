import numpy as np
import pytest
import torch
from steps import decode, empty, new_request, prefill
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.build import DecodeBuilder
from vllm_tt.batch.rows import Rows
from vllm_tt.sampling.policy import Where
from vllm_tt.worker.reloads import Reload, Resident

ALL = Reload(inputs=True, sampling=True)
NOTHING = Reload(inputs=False)
TABLE = Reload(inputs=False, page_table=True)
DEVICE = Where(device=True)


class Driver:
    """Requests a, b and c in slots 0, 1 and 2, each two tokens into pages of four; a row covers eight positions.

    The last token of c is the one that position 5 gives.
    """

    def __init__(self, explicit=True):
        self.rows = Rows(4, [2], 32)
        self.builder = DecodeBuilder(self.rows)
        self.resident = Resident(self.rows, capacity=8, explicit=explicit)
        params = {"c": SamplingParams(temperature=0, max_tokens=5)}
        new = [
            new_request(name, [1, 2], [page], params=params.get(name))
            for name, page in zip("abc", (1, 2, 3), strict=True)
        ]
        self.rows.apply(prefill(*[(name, slot, 0, 2, False) for slot, name in enumerate("abc")], new=new))

    def decode(self, position, names="abc", where=DEVICE, *, c_is_ahead=0, **more):
        starts = {"a": position, "b": position, "c": position + c_is_ahead}
        rows = [(name, "abc".index(name), starts[name], starts[name] + 1, False) for name in names]
        output = decode(*rows, **{"cached": [(name, None) for name in names]} | more)
        self.rows.apply(output)
        table = self.builder.page_tables(output.plan)
        reload = self.resident.reload(output.plan, table) if where.device else Reload(inputs=True)
        if where.device:
            self.resident.submitted(output.plan, table, where, reload)
        else:
            self.resident.forget()
        return reload


def test_the_first_decode_loads_everything_and_the_next_nothing():
    driver = Driver()
    assert [driver.decode(2), driver.decode(3)] == [ALL, NOTHING]


def test_a_new_page_is_loaded_with_the_table_alone():
    driver = Driver()
    driver.decode(2)
    driver.decode(3)
    assert driver.decode(4, cached=[("a", [4]), ("b", None), ("c", None)]) == TABLE
    assert driver.decode(5) == NOTHING


def test_an_adapter_without_commands_loads_everything_for_a_new_page():
    driver = Driver(explicit=False)
    driver.decode(2)
    assert driver.decode(3) == NOTHING
    assert driver.decode(4, cached=[("a", [4]), ("b", None), ("c", None)]) == ALL


def test_a_row_that_is_done_goes_on_unread_with_null_pages():
    driver = Driver()
    driver.decode(2)
    assert driver.decode(3, "ac", released=[1], finished=["b"]) == TABLE
    assert driver.decode(4, "ac") == NOTHING
    (table,) = driver.builder.page_tables(decode(("a", 0, 5, 6, False)).plan)
    assert table.tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]


def test_a_row_that_goes_on_unread_does_not_leave_the_page_table():
    driver = Driver()
    driver.decode(2, c_is_ahead=3)
    assert driver.decode(3, "ab") == TABLE
    assert driver.decode(4, "ab") == NOTHING
    # The row of c would now write position 8 of 8.
    assert driver.decode(5, "ab") == ALL
    assert driver.decode(6, "ab") == NOTHING


def test_a_row_that_pauses_is_taken_out_and_loaded_again():
    driver = Driver()
    driver.decode(2)
    assert driver.decode(3, "ac") == ALL
    assert driver.decode(4, "ac") == NOTHING
    assert driver.decode(3, "b") == ALL


@pytest.mark.parametrize(("c_is_ahead", "expected"), [(2, ALL), (3, TABLE)], ids=["before its end", "at its end"])
def test_a_row_with_all_its_tokens_does_not_pause(c_is_ahead, expected):
    driver = Driver()
    driver.decode(2, c_is_ahead=c_is_ahead)
    assert driver.decode(3, "ab") == expected


@pytest.mark.parametrize("new", [True, False])
def test_a_slot_with_another_request_is_loaded_again(new):
    driver = Driver()
    driver.decode(2)
    driver.rows.apply(empty(released=[1]))
    then = {"new": [new_request("d", [1, 2, 3], [5])]} if new else {"cached": [("b", [5])], "resumed": {"b": [1, 2, 9]}}
    driver.rows.apply(prefill(("d" if new else "b", 1, 0, 3, False), **then))
    plan = decode(("a", 0, 3, 4, False), ("d" if new else "b", 1, 3, 4, False)).plan
    assert driver.resident.reload(plan, driver.builder.page_tables(plan)) == ALL


def test_tokens_of_rows_that_the_host_sampled_are_loaded():
    driver = Driver()
    driver.decode(2, where=Where(device=True, host_rows=(1,)))
    assert driver.decode(3) == ALL
    assert driver.decode(4) == NOTHING


def test_after_a_step_on_the_host_everything_is_loaded():
    driver = Driver()
    driver.decode(2)
    assert driver.decode(3, where=Where(device=False, host_rows=(0, 1, 2))) == Reload(inputs=True)
    assert [driver.decode(4), driver.decode(5)] == [ALL, NOTHING]


def test_after_a_prefill_everything_is_loaded():
    driver = Driver()
    driver.decode(2)
    driver.resident.forget()
    assert driver.decode(3) == ALL


def test_what_was_handed_out_stays_as_it_was():
    driver = Driver()
    plan = decode(("a", 0, 2, 3, False)).plan
    first = driver.builder.build(plan)
    before = [tensor.clone() for tensor in (first.tokens, first.start_pos, first.page_tables[0])]
    driver.rows.last_token[:] = 9
    driver.rows.page_tables[0].append(0, [7])
    second = driver.builder.build(decode(("a", 0, 3, 4, False)).plan)
    assert all(map(torch.equal, before, (first.tokens, first.start_pos, first.page_tables[0])))
    assert second.page_tables is not first.page_tables
    assert second.page_tables[0][0].tolist() == [1, 7]
    assert np.array_equal(second.start_pos.numpy(), [3, -1, -1, -1])


def test_the_commands_by_name():
    assert ALL.keywords() == {
        "reload_inputs": True,
        "reload_page_table": False,
        "reload_sampling_params": True,
        "reset_sampling_state": True,
    }
    assert [name for name, value in TABLE.keywords().items() if value] == ["reload_page_table"]
