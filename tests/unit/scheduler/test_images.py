"""Prefix-cache hits of prompts with images, found by vLLM's manager."""

import pytest
import torch
from images import feature
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

from vllm_tt.scheduler.images import keep_images_whole, whole_images

PAGE = 4


@pytest.fixture
def manager():
    init_none_hash(sha256)
    spec = FullAttentionSpec(block_size=PAGE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    made = KVCacheManager(
        config,
        max_model_len=64,
        scheduler_block_size=PAGE,
        hash_block_size=PAGE,
        enable_caching=True,
        log_stats=True,
    )
    keep_images_whole(made)
    return made


def request(name, length, *features, last=1):
    return Request(
        request_id=name,
        prompt_token_ids=[1] * (length - 1) + [last],
        sampling_params=SamplingParams(),
        pooling_params=None,
        mm_features=list(features),
        block_hasher=get_request_block_hasher(PAGE, sha256),
    )


@pytest.mark.parametrize(
    ("images", "cached"),
    [
        ((), 20),
        ([(2, 6)], 20),
        ([(18, 4)], 16),
        ([(8, 13)], 8),
        ([(20, 3)], 20),
        ([(5, 10), (14, 9)], 4),
        ([(1, 22)], 0),
    ],
    ids=[
        "no image",
        "an image before its end",
        "within an image",
        "within one that starts with a page",
        "as an image starts",
        "the shorter hit is within another image",
        "within an image from the first page on",
    ],
)
def test_a_hit_ends_outside_of_images(manager, images, cached):
    features = [feature(offset, length, name=f"image at {offset}") for offset, length in images]
    first = request("a", 24, *features)
    manager.allocate_slots(first, 24)
    again = request("b", 24, *features, last=2)
    blocks, tokens, *_ = manager.get_computed_blocks(again)
    assert tokens == cached
    assert len(blocks.get_block_ids()[0]) == cached // PAGE
    stats = manager.make_prefix_cache_stats()
    assert (stats.requests, stats.queries, stats.hits) == (1, 24, cached)


@pytest.mark.parametrize(
    ("start", "count", "whole"),
    [(0, 5, 5), (0, 8, 5), (0, 11, 11), (0, 12, 11), (5, 3, 0), (5, 6, 6), (5, 7, 6), (11, 8, 8), (19, 5, 5)],
)
@pytest.mark.usefixtures("manager")  # requests are hashed
def test_a_chunk_ends_outside_of_images(start, count, whole):
    one = request("a", 30, feature(5, 6), feature(11, 8))
    assert whole_images(one, start, count) == whole
