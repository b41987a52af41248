from __future__ import annotations

import logging

import pytest
from snapshot import snapshot
from vllm.config.multimodal import MultiModalConfig

from vllm_tt.contract import Capabilities
from vllm_tt.platform import multimodal
from vllm_tt.platform.multimodal import takes_images
from vllm_tt.platform.policies import Change, Model, adjust
from vllm_tt.platform.refusals import ImageEmbeds, refuse_image_embeds
from vllm_tt.platform.settled import keep

CHUNKS = {"supports_chunked_prefill": True, "supports_prefix_caching": True, "supports_async_decode": True}


@pytest.fixture
def settle(make_config, monkeypatch):
    """``settle(limits, images=...)``: the limits, the changes and the configuration of a model that takes images."""
    monkeypatch.setattr(multimodal, "longest_image", lambda config: 5000)

    def settled(limits=None, *, images=None, **scheduler):
        config = make_config(scheduler=scheduler)
        config.model_config.multimodal_config = MultiModalConfig(limit_per_prompt=limits or {})
        model = Model(name="TTVision", capabilities=Capabilities(**CHUNKS, max_images_per_prompt=images))
        changes = adjust(config, model)
        keep(config, lanes=1)
        once = snapshot(config)
        adjust(config, model)
        assert snapshot(config) == once
        found = config.model_config.multimodal_config
        return {name: found.get_limit_per_prompt(name) for name in ("image", "video", "audio")}, changes, config

    return settled


@pytest.mark.parametrize(
    ("limits", "images", "expected", "said"),
    [
        ({}, None, (999, 0, 0), None),
        ({}, 1, (1, 0, 0), None),
        ({}, 0, (0, 0, 0), None),
        ({"image": 2}, None, (2, 0, 0), None),
        ({"image": 2}, 4, (2, 0, 0), None),
        ({"image": 3, "video": 0}, 1, (1, 0, 0), "more than 1 images a prompt"),
        ({"image": 3, "video": 2}, 1, (1, 0, 0), "videos and more than 1 images a prompt"),
        ({"audio": 1}, None, (999, 0, 0), "audios"),
    ],
)
def test_a_prompt_has_what_the_adapter_takes(settle, limits, images, expected, said):
    found, changes, _ = settle(limits, images=images, max_num_batched_tokens=8192)
    assert tuple(found.values()) == expected
    texts = [change.text for change in changes]
    assert texts == ([f"--limit-mm-per-prompt: the adapter does not take {said}"] if said else [])


def test_the_size_of_images_for_profiling_stays(settle):
    _, _, config = settle({"image": {"count": 5, "width": 64}}, images=2)
    assert config.model_config.multimodal_config.limit_per_prompt["image"].width == 64


def test_the_largest_image_fits_into_a_chunk(settle):
    _, changes, config = settle(max_num_batched_tokens=2048)
    assert changes == [
        Change(
            "max_num_batched_tokens is raised from 2048 to 5000, so that the largest image fits into a step "
            "(--mm-processor-kwargs can make images smaller)",
            logging.INFO,
        )
    ]
    assert config.scheduler_config.max_num_batched_tokens == 5000
    assert config.scheduler_config.disable_chunked_mm_input


def test_the_largest_image_fits_into_the_chunk_of_a_long_prompt(settle):
    _, (change,), config = settle(max_num_batched_tokens=8192, long_prefill_token_threshold=300)
    assert change.text.startswith("long_prefill_token_threshold is raised from 300 to 5000, so that the largest image ")
    assert config.scheduler_config.long_prefill_token_threshold == 5000
    assert config.scheduler_config.max_num_batched_tokens == 8192


def test_the_largest_image_fits_into_a_step_that_is_bounded_apart_from_the_batch(settle):
    _, (change,), config = settle(max_num_batched_tokens=8192, max_num_scheduled_tokens=1000)
    assert change.text.startswith("max_num_scheduled_tokens is raised from 1000 to 5000, so that the largest image ")
    assert config.scheduler_config.max_num_scheduled_tokens == 5000


def test_no_encoder_budget_limits_a_step(settle):
    scheduler = settle(max_num_seqs=8)[2].scheduler_config
    assert scheduler.max_num_encoder_input_tokens == 2 * 4096 * 8


@pytest.mark.parametrize(
    ("limits", "largest"),
    [
        ({}, 8192),
        ({"max_num_scheduled_tokens": 7000}, 7000),
        ({"long_prefill_token_threshold": 6000, "max_num_scheduled_tokens": 7000}, 6000),
        ({"long_prefill_token_threshold": 300}, 5000),
    ],
    ids=["a batch", "a step", "a chunk", "the largest image of the server"],
)
def test_the_front_end_refuses_images_that_fit_into_no_step(settle, limits, largest):
    scheduler = settle(max_num_batched_tokens=8192, **limits)[2].scheduler_config
    assert scheduler.encoder_cache_size == largest


def test_a_text_model_is_left_alone(make_config):
    config = make_config()
    before = config.scheduler_config.encoder_cache_size
    adjust(config, Model(name="TTText", capabilities=Capabilities(**CHUNKS)))
    assert config.scheduler_config.encoder_cache_size == before
    assert not takes_images(config.model_config, Capabilities())


@pytest.mark.parametrize(("images", "expected"), [(None, True), (1, True), (0, False)])
def test_an_adapter_may_serve_the_text_of_a_model_that_takes_images(make_config, images, expected):
    config = make_config()
    config.model_config.multimodal_config = MultiModalConfig()
    assert takes_images(config.model_config, Capabilities(max_images_per_prompt=images)) is expected


def test_embeddings_of_images_are_refused(make_config):
    config = make_config()
    config.model_config.multimodal_config = MultiModalConfig(enable_mm_embeds=True)
    with pytest.raises(ImageEmbeds) as error:
        refuse_image_embeds(config)
    assert str(error.value) == (
        "--enable-mm-embeds is not available: adapters encode images themselves. Leave it out and send the images."
    )
