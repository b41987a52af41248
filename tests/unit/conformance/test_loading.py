import json
from pathlib import Path

import pytest
import torch

from vllm_tt.conformance.loading import CheckpointNotRead, UnknownDtype, load_subject, read_config
from vllm_tt.conformance.request import Request

LLAMA_HOST = str(Path(__file__).parents[3] / "bundles" / "llama-host")


def subject(tiny, chips=2, **asked):
    request = Request(folder=LLAMA_HOST, model=str(tiny), **asked)
    return load_subject(request, read_config(str(tiny)), chips)


def test_sizes_where_numbers_are_compared_are_what_the_cases_need(tiny):
    sizes = subject(tiny, block_size=16, max_num_seqs=8, max_model_len=128).sizes
    assert (sizes.slots, sizes.width, sizes.pages, sizes.layers, sizes.vocab_size) == (8, 8, 33, 2, 256)
    assert sizes.kv_shape == (33, 1, 16, 32)


def test_sizes_of_a_dry_run_are_what_a_server_would_allocate(tiny):
    sizes = subject(tiny, dry_run=True, block_size=64, max_num_seqs=32, max_model_len=1024).sizes
    assert sizes.pages == 1024 * 32 // 64 + 32


def test_the_longest_sequence_is_the_models(tiny):
    assert subject(tiny, dry_run=True, max_model_len=4096).sizes.max_seq_len == 2048


@pytest.mark.parametrize(("chips", "heads"), [(1, 2), (2, 1), (8, 1)])
def test_kv_heads_are_those_of_one_chip(tiny, chips, heads):
    assert subject(tiny, chips).sizes.kv_shape[1] == heads


def test_each_lane_has_the_slots_and_pages_that_one_alone_has(tiny):
    alone = subject(tiny, chips=4, block_size=16, max_num_seqs=8, max_model_len=128)
    sizes = alone.in_lanes(2).sizes
    assert (sizes.slots, sizes.slots_per_lane, sizes.pages) == (16, 8, alone.sizes.pages)
    assert [sizes.lane_of(slot) for slot in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert (alone.sizes.kv_shape[1], alone.in_lanes(4).sizes.kv_shape[1]) == (1, 2)


def test_the_dtype_is_the_checkpoints_unless_another_is_asked_for(tiny):
    assert subject(tiny).dtype is torch.float32
    assert subject(tiny, dtype="bfloat16").dtype is torch.bfloat16
    with pytest.raises(UnknownDtype) as caught:
        subject(tiny, dtype="float13")
    assert str(caught.value) == "'float13' is no dtype of torch; use bfloat16, float16 or float32."


@pytest.mark.parametrize("content", [None, "{", json.dumps({"model_type": "no-such-model"})])
def test_configurations_that_cannot_be_read(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointNotRead) as caught:
        read_config(str(tmp_path))
    assert str(caught.value).startswith(f"The configuration of {tmp_path} cannot be read: ")
