"""Which tokens of a step belong to which slot, and what slots keep."""

from __future__ import annotations

import numpy as np
import torch

from vllm_tt.host.slot_state import Run, SlotState, runs
from vllm_tt.host.step import DecodeStep, PrefillStep

PAGE = 4


def facts(found: list[Run]) -> list[tuple[list[int], list[list[int]], list[bool]]]:
    return [(run.slots.tolist(), run.tokens.tolist(), run.begins.tolist()) for run in found]


def test_prompts_are_run_by_their_length() -> None:
    step = PrefillStep.build(
        torch.zeros((4, 9)).int(),
        torch.zeros((4, 3)).int(),
        np.array([0, 6, 2, 0]),
        np.array([2, 9, 4, 3]),
        PAGE,
        torch.tensor([5, 0, 3, 2]),
    )
    assert facts(runs(step)) == [
        ([5, 3], [[0, 1], [5, 6]], [True, False]),
        ([0, 2], [[2, 3, 4], [7, 8, 9]], [False, True]),
    ]


def test_decoding_slots_are_one_run_without_the_idle_ones() -> None:
    positions = torch.tensor([-1, 7, 0, -1, 12]).int()
    step = DecodeStep.build(torch.zeros((5, 1)).int(), torch.zeros((5, 4)).int(), positions, PAGE)
    assert facts(runs(step)) == [([1, 2, 4], [[0], [1], [2]], [False, True, False])]


def test_a_slot_keeps_its_state_until_a_row_begins_there() -> None:
    state = SlotState(4, (2,), torch.float32)

    def run(slots: list[int], begins: list[bool]) -> Run:
        return Run(tokens=torch.arange(len(slots))[:, None], slots=torch.tensor(slots), begins=torch.tensor(begins))

    state.write(run([3, 1], [True, True]), torch.tensor([[3.0, 3], [1, 1]]))
    assert state.read(run([0, 1, 3], [False, False, False])).tolist() == [[0, 0], [1, 1], [3, 3]]
    assert state.read(run([1, 3], [True, False])).tolist() == [[0, 0], [3, 3]]
    assert state.read(run([1], [False])).tolist() == [[1, 1]], "reading changes nothing"


def test_a_state_has_a_dtype_of_its_own() -> None:
    state = SlotState(1, (1,), torch.bfloat16)
    run = Run(tokens=torch.zeros((1, 1)).long(), slots=torch.tensor([0]), begins=torch.tensor([False]))
    state.write(run, torch.tensor([[1.0]]))
    assert state.read(run).dtype == torch.bfloat16
