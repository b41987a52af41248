import pytest
import torch
from probe_config import probe_config
from vllm.v1.sample.sampler import Sampler

from vllm_tt.sampling.vllm_sampler import QuickSampler


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ({}, True),
        ({"logprobs_mode": "raw_logits"}, True),
        ({"logprobs_mode": "processed_logprobs"}, False),
        ({"logprobs_mode": "processed_logits"}, False),
        ({"use_fp64_gumbel": True}, False),
    ],
)
def test_the_draw_is_vllms_where_only_its_own_gives_what_the_operator_asks(tmp_path, options, ours):
    sampler = QuickSampler(probe_config(tmp_path, vocab_size=50, rows=2, **options).model_config)
    assert sampler.draws is ours
    assert type(sampler.topk_topp_sampler).__name__ == ("Draw" if ours else "TopKTopPSampler")
    assert sampler.use_fp64_gumbel == options.get("use_fp64_gumbel", False)


@pytest.mark.parametrize("asked", [0, 1, 20, 64, 65, 1000])
def test_logprobs_are_vllms(asked):
    logprobs = torch.randn(5, 1000, generator=torch.Generator().manual_seed(1)).log_softmax(1)
    logprobs[3, 10:] = float("-inf")
    chosen = torch.tensor([3, 999, 0, 5, 7])
    found, expected = (one.gather_logprobs(logprobs, asked, chosen) for one in (QuickSampler, Sampler))
    assert torch.equal(found.logprobs, expected.logprobs)
    assert torch.equal(found.selected_token_ranks, expected.selected_token_ranks)
    finite = expected.logprobs.isfinite()
    assert torch.equal(found.logprob_token_ids[finite], expected.logprob_token_ids[finite])
    assert [one.dtype for one in found[:3]] == [one.dtype for one in expected[:3]]


def test_of_equal_logprobs_the_lower_token_comes_first():
    logprobs = -9.0 - torch.arange(1000.0)[None]
    logprobs[0, [700, 20, 500]] = -1.0
    found = QuickSampler.gather_logprobs(logprobs, 3, torch.tensor([500]))
    assert found.logprob_token_ids.tolist() == [[500, 20, 500, 700]]
    assert found.selected_token_ranks.tolist() == [3]
