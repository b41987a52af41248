"""The thread that stands for a device: order, overlap, what it holds, and where errors come out."""

import threading

import numpy as np
import pytest
import torch

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.host.device import HostDevice

VOCAB, SLOTS = 32, 3


class Counting:
    """Each next token is the last one plus its position; steps wait for `go` where it is given."""

    def __init__(self, go=None):
        self.seen, self.go = [], go

    def __call__(self, held):
        tokens, positions, page_table = held.tokens, held.positions, held.page_table
        if self.go is not None:
            assert self.go.wait(20)
        self.seen.append((tokens.flatten().tolist(), positions.tolist(), page_table[:, 0].tolist()))
        live = positions >= 0
        following = (tokens[live, 0] + positions[live]) % VOCAB
        return torch.nn.functional.one_hot(following.long(), VOCAB).float()


@pytest.fixture
def device():
    return HostDevice(None, vocab_size=VOCAB, max_logprobs=4)


def inputs(tokens=(1, 0, 5), positions=(2, -1, 3), pages=(1, 2, 3), params=None, **more):
    return {
        "tokens": torch.tensor(tokens, dtype=torch.int32)[:, None],
        "start_pos": torch.tensor(positions, dtype=torch.int32),
        "page_table": torch.tensor(pages, dtype=torch.int32)[:, None],
        "sampling_params": params or DeviceSamplingParams.greedy(SLOTS),
        **more,
    }


STALE = {"reload_inputs": False, "reload_page_table": False, "reload_sampling_params": False}
GOES_ON = inputs(tokens=(0, 0, 0), positions=(0, 0, 0), **STALE, reset_sampling_state=False)


def test_steps_in_flight_go_on_from_each_other(device):
    go = threading.Event()
    compute = Counting(go)
    first = device.decode(compute, **inputs())
    second = device.decode(compute, **GOES_ON)
    assert not first.done()
    go.set()
    assert [first.result().tolist(), second.result().tolist()] == [[3, 0, 8], [6, 0, 12]]
    assert [positions for _, positions, _ in compute.seen] == [[2, -1, 3], [3, -1, 4]]


def test_the_caller_goes_on_while_the_device_computes(device):
    """Both are in their own half at once: each waits for the other there."""
    met = threading.Barrier(2, timeout=20)

    def compute(held):
        met.wait()
        return torch.zeros(2, VOCAB)

    out = device.decode(compute, **inputs())
    met.wait()
    assert out.result().tolist() == [0, 0, 0]


def test_arguments_may_be_used_again_at_once(device):
    go = threading.Event()
    compute = Counting(go)
    given = inputs()
    out = device.decode(compute, **given)
    for name in ("tokens", "start_pos", "page_table"):
        given[name].fill_(9)
    given["sampling_params"].temperature[0] = 3.0
    go.set()
    assert out.result().tolist() == [3, 0, 8]
    assert compute.seen == [([1, 0, 5], [2, -1, 3], [1, 2, 3])]


def test_a_prefill_waits_for_the_decodes_before_it(device):
    go, compute = threading.Event(), Counting(threading.Event())
    order = []
    compute.go.set()

    def slow(*held):
        assert go.wait(20)
        order.append("decode")
        return compute(*held)

    def prefill():
        order.append("prefill")
        return torch.zeros(1, VOCAB)

    out = device.decode(slow, **inputs())
    threading.Timer(0.05, go.set).start()
    given = {"tokens": torch.zeros((1, 2), dtype=torch.int32), "prompt_lens": np.array([2])}
    assert device.prefill(prefill, **given).shape == (1, 1, VOCAB)
    assert order == ["decode", "prefill"]
    assert out.result().tolist() == [3, 0, 8]


def test_what_goes_wrong_in_a_step_is_raised_where_it_is_read(device):
    def fails(*held):
        raise ValueError("no such page")

    out = device.decode(fails, **inputs())
    with pytest.raises(ValueError, match="no such page"):
        out.result()
    with pytest.raises(ValueError, match="no such page"):
        device.prefill(fails, tokens=torch.zeros((1, 1), dtype=torch.int32), prompt_lens=np.array([1]))
    assert device.decode(Counting(), **inputs()).result().tolist() == [3, 0, 8]


def test_without_sampling_logits_come_back_by_slot(device):
    given = inputs()
    del given["sampling_params"]
    logits = device.decode(Counting(), **given).result()
    assert logits.shape == (SLOTS, 1, VOCAB)
    assert logits[:, 0].argmax(-1).tolist() == [3, 0, 8]
    assert not logits[1].any()


def test_with_no_live_slot_nothing_is_computed(device):
    compute = Counting()
    assert device.decode(compute, **inputs(positions=(-1, -1, -1))).result().tolist() == [0, 0, 0]
    assert device.decode(compute, **inputs(positions=(-1, -1, -1), params=None)).result().tolist() == [0, 0, 0]
    assert compute.seen == []


def test_logits_of_the_rows_that_the_host_samples(device):
    tokens, logprobs, logits = device.decode(Counting(), **inputs(logits_rows=[2, 0])).result()
    assert (tokens[0].item(), tokens[2].item(), logprobs) == (3, 8, None)
    assert logits.argmax(-1).tolist() == [8, 3]


def seeded(rows, seed):
    params = DeviceSamplingParams.greedy(rows)
    for row in range(rows):
        params.temperature[row], params.top_k[row], params.seed[row] = 4.0, VOCAB, seed
    return params


def test_a_seeded_token_is_the_same_from_prefill_and_decode_in_any_slot(device):
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(2))
    drawn = []
    for length in range(2, 30):
        found = device.prefill(
            lambda: logits.repeat(2, 1),
            tokens=torch.zeros((2, 40), dtype=torch.int32),
            prompt_lens=np.array([40, length]),
            sampling_params=seeded(2, 77),
        )
        decoded = device.decode(
            lambda *held: logits.repeat(2, 1), **inputs(positions=(length - 1, -1, length - 1), params=seeded(3, 77))
        ).result()
        assert decoded[0] == decoded[2] == found[1]
        drawn.append(found[1].item())
    assert len(set(drawn)) > 8


def test_in_a_prefill_penalties_count_the_prompt_up_to_its_end(device):
    params = DeviceSamplingParams.greedy(2)
    params.repetition_penalty[0] = params.presence_penalty[1] = 99.0
    logits = torch.zeros(2, VOCAB)
    logits[:, 5], logits[:, 6], logits[:, 7] = 3.0, 2.0, 1.0
    found = device.prefill(
        logits.clone,
        tokens=torch.tensor([[5, 1, 6], [5, 6, 7]], dtype=torch.int32),
        prompt_lens=np.array([2, 3]),
        sampling_params=params,
    )
    assert found.tolist() == [6, 5]


def test_reading_without_a_mesh_has_no_events(device):
    out = device.decode(Counting(), **inputs())
    assert device.read(out, True) == (out, [])
