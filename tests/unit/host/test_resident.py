from dataclasses import replace

import pytest
import torch

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.host.resident import DecodeInputs, Resident
from vllm_tt.host.sampler import HostDeviceSampler

VOCAB = 16


@pytest.fixture
def resident():
    return Resident(HostDeviceSampler(VOCAB, 2))


def inputs(tokens=(1, 2, 3), positions=(4, -1, 6), page=1, **more):
    return DecodeInputs(
        tokens=torch.tensor(tokens, dtype=torch.int32)[:, None],
        start_pos=torch.tensor(positions, dtype=torch.int32),
        page_table=torch.full((3, 2), page, dtype=torch.int32),
        sampling_params=DeviceSamplingParams.greedy(3),
        **more,
    )


def next_of(*tokens):
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCAB).float()


NOTHING = {
    "reload_inputs": False,
    "reload_page_table": False,
    "reload_sampling_params": False,
    "reset_sampling_state": False,
}


def test_sampled_tokens_are_the_next_inputs_one_position_further(resident):
    resident.load(inputs().update())
    assert resident.live == [0, 2]
    assert resident.sample(next_of(7, 8), None).tokens.tolist() == [7, 0, 8]
    resident.load(inputs(tokens=(0, 0, 0), positions=(0, 0, 0), page=9, **NOTHING).update())
    assert resident.tokens.tolist() == [[7], [0], [8]]
    assert resident.positions.tolist() == [5, -1, 7]
    assert resident.page_table.unique().tolist() == [1]
    assert str(resident.positions.dtype) == str(resident.tokens.dtype) == "torch.int32"


def test_a_page_table_is_loaded_alone(resident):
    resident.load(inputs().update())
    resident.sample(next_of(7, 8), None)
    resident.load(inputs(page=9, **NOTHING | {"reload_page_table": True}).update())
    assert resident.page_table.unique().tolist() == [9]
    assert resident.positions.tolist() == [5, -1, 7]


def test_the_tables_of_all_layers_are_loaded_together(resident):
    main, windowed = torch.full((3, 2), 1, dtype=torch.int32), torch.full((3, 3), 2, dtype=torch.int32)
    given = {"page_table": main, "page_tables_per_layer": [windowed, windowed, main]}
    resident.load(replace(inputs(), **given).update())
    held = resident.page_tables_per_layer
    assert [table.unique().tolist() for table in held] == [[2], [2], [1]]
    assert held[2] is resident.page_table, "shared as they came"
    assert held[0] is held[1]
    main[:], windowed[:] = 8, 9
    resident.load(replace(inputs(**NOTHING), **given).update())
    assert resident.page_tables_per_layer is held
    assert [table.unique().tolist() for table in held] == [[2], [2], [1]], "the device has its own"
    resident.load(replace(inputs(**NOTHING | {"reload_page_table": True}), **given).update())
    assert [table.unique().tolist() for table in resident.page_tables_per_layer] == [[9], [9], [8]]
    assert resident.page_table.unique().tolist() == [8]


def test_rotary_deltas_are_those_of_the_last_inputs(resident):
    resident.load(inputs(rope_deltas_all_users=[-7, None, 0]).update())
    assert resident.rope_deltas.tolist() == [-7, 0, 0]
    resident.load(inputs(rope_deltas_all_users=[5, 5, 5], **NOTHING | {"reload_page_table": True}).update())
    assert resident.rope_deltas.tolist() == [-7, 0, 0]
    resident.load(inputs(rope_deltas_all_users=None).update())
    assert resident.rope_deltas.tolist() == [0, 0, 0]


def test_new_inputs_take_slots_in_and_out(resident):
    resident.load(inputs().update())
    resident.load(inputs(positions=(-1, 3, 7), page=5, **NOTHING | {"reload_inputs": True}).update())
    assert resident.live == [1, 2]
    assert resident.page_table.unique().tolist() == [5]


def test_parameters_and_counts_stay_until_they_are_loaded(resident):
    given = inputs()
    given.sampling_params.presence_penalty[0] = 99.0
    resident.load(given.update())
    assert resident.sample(next_of(7, 8), None).tokens[0] == 7
    resident.load(inputs(**NOTHING).update())
    assert resident.sample(next_of(7, 8), None).tokens[0] == 0
    resident.load(inputs(**NOTHING | {"reload_sampling_params": True}).update())
    assert resident.sample(next_of(7, 8), None).tokens[0] == 7
    again = inputs(**NOTHING | {"reload_sampling_params": True})
    again.sampling_params.presence_penalty[0] = 99.0
    resident.load(again.update())
    assert resident.sample(next_of(7, 8), None).tokens[0] == 1


def test_histories_are_read_at_a_reset_alone(resident):
    history = torch.tensor([[7], [-1], [-1]], dtype=torch.int32)
    resident.load(inputs().update())
    for reset, token in ((True, 0), (False, 1), (True, 0)):
        given = inputs(
            output_tokens=history, **NOTHING | {"reload_sampling_params": True, "reset_sampling_state": reset}
        )
        given.sampling_params.presence_penalty[0] = 99.0
        resident.load(given.update())
        assert resident.sample(next_of(7, 8), None).tokens[0] == token


def test_what_is_loaded_is_a_copy_and_the_rest_is_not_touched():
    given = inputs(prompt_tokens=torch.zeros((3, 1)), output_tokens=torch.zeros((3, 1)))
    update = given.update()
    for tensor in (given.tokens, given.start_pos, given.page_table, given.prompt_tokens, given.output_tokens):
        tensor.fill_(11)
    given.sampling_params.temperature[0] = 5.0
    for tensor in (update.tokens, update.positions, update.page_table, update.prompt_tokens, update.output_tokens):
        assert not (tensor == 11).any()
    assert update.params[0].temperature == 0.0
    nothing = inputs(**NOTHING).update()
    assert [getattr(nothing, name) for name in ("tokens", "positions", "page_table", "params", "prompt_tokens")] == [
        None
    ] * 5
    assert not nothing.reset
