from dataclasses import replace

import numpy as np
import torch
from steps import decode, empty, new_request, prefill

from vllm_tt.batch.build import DecodeBuilder, build_prefill
from vllm_tt.batch.rows import Rows


def test_prefill_rows_are_in_plan_order_with_tokens_from_the_first():
    rows = Rows(4, [3], 32)
    output = prefill(
        ("a", 2, 0, 3, False),
        ("b", 0, 4, 6, True),
        new=[new_request("a", [1, 2, 3], [7]), new_request("b", [10, 11, 12, 13, 14, 15, 16], [5, 6], computed=4)],
    )
    rows.apply(output)
    inputs = build_prefill(output.plan, rows)
    assert inputs.tokens.dtype == torch.int32
    assert inputs.tokens.tolist() == [[1, 2, 3, 0, 0, 0], [10, 11, 12, 13, 14, 15]]
    assert inputs.page_tables[0].tolist() == [[7, 0, 0], [5, 6, 0]]
    assert inputs.prompt_lens.dtype == inputs.start_pos.dtype == np.int64
    assert inputs.prompt_lens.tolist() == [3, 6]
    assert inputs.start_pos.tolist() == [0, 4]
    assert inputs.empty_slots == [2, 0]


def test_a_resumed_prompt_is_replayed_with_what_it_had_generated():
    rows = Rows(2, [3], 32)
    rows.apply(prefill(("a", 0, 0, 2, False), new=[new_request("a", [1, 2], [7])]))
    rows.apply(empty(released=[0]))
    output = prefill(("a", 1, 0, 4, False), cached=[("a", [3])], resumed={"a": [1, 2, 50, 51]})
    rows.apply(output)
    assert build_prefill(output.plan, rows).tokens.tolist() == [[1, 2, 50, 51]]


def test_decode_is_indexed_by_slot_and_idle_slots_touch_nothing():
    rows = Rows(4, [2], 32)
    rows.apply(
        prefill(
            ("a", 3, 0, 2, False),
            ("b", 1, 0, 1, True),
            new=[new_request("a", [1, 2], [7]), new_request("b", [5, 6], [8])],
        )
    )
    rows.last_token[3] = 42
    rows.last_token[1] = 13
    output = decode(("a", 3, 2, 3, False), cached=[("a", None)])
    rows.apply(output)
    inputs = DecodeBuilder(rows).build(output.plan)
    assert inputs.tokens.tolist() == [[0], [0], [0], [42]]
    assert inputs.start_pos.tolist() == [-1, -1, -1, 2]
    assert inputs.page_tables[0].tolist() == [[0, 0], [0, 0], [0, 0], [7, 0]]
    assert inputs.tokens.dtype == inputs.start_pos.dtype == inputs.page_tables[0].dtype == torch.int32


def test_a_page_of_any_group_makes_all_tables_new():
    rows = Rows(2, [2, 4], 32, windowed={1})
    new = replace(new_request("a", [1, 2], [1]), block_ids=([1], [0, 2]))
    rows.apply(prefill(("a", 0, 0, 2, False), new=[new]))
    builder = DecodeBuilder(rows)

    def tables(start, pages=None):
        output = decode(("a", 0, start, start + 1, False), cached=[("a", None)])
        output.scheduled_cached_reqs.new_block_ids = [pages]
        rows.apply(output)
        rows.check()
        return builder.page_tables(output.plan)

    first = tables(2)
    assert [table.tolist() for table in first] == [[[1, 0], [0, 0]], [[0, 2, 0, 0], [0, 0, 0, 0]]]
    assert tables(3) is first
    grown = tables(4, ([], [5]))
    assert [table.tolist() for table in grown] == [[[1, 0], [0, 0]], [[0, 2, 5, 0], [0, 0, 0, 0]]]
    assert first[1].tolist()[0] == [0, 2, 0, 0], "a table that was sent is never written again"
    assert tables(5) is grown


def test_prefill_has_a_table_of_each_group_in_plan_order():
    rows = Rows(3, [1, 2], 32)
    new = [replace(new_request(name, [1], []), block_ids=([page], [page + 1])) for name, page in (("a", 1), ("b", 3))]
    output = prefill(("b", 2, 0, 1, False), ("a", 0, 0, 1, False), new=new)
    rows.apply(output)
    inputs = build_prefill(output.plan, rows)
    assert [table.tolist() for table in inputs.page_tables] == [[[3], [1]], [[4, 0], [2, 0]]]
