from __future__ import annotations

import logging

import pytest
from snapshot import snapshot

from vllm_tt.config import TTConfig
from vllm_tt.contract import Capabilities
from vllm_tt.platform.policies import SCHEDULER, WORKER, Change, Model, adjust

PLAIN = Model(name="TTLlamaForCausalLM", capabilities=Capabilities())
ABLE = Model(
    name="TTLlamaForCausalLM",
    capabilities=Capabilities(
        supports_prefix_caching=True,
        supports_chunked_prefill=True,
        supports_async_decode=True,
        supports_sample_on_device=True,
    ),
)
NO_CACHING = Change("prefix caching is off: TTLlamaForCausalLM does not declare supports_prefix_caching")
NO_CHUNKS = "chunked prefill is off: TTLlamaForCausalLM does not declare supports_chunked_prefill"
FITS = "so that a whole prompt fits into a step"


def test_our_classes_in_one_process(make_config):
    config = make_config()
    adjust(config, ABLE)
    assert config.parallel_config.worker_cls == WORKER
    assert config.scheduler_config.scheduler_cls == SCHEDULER
    assert config.parallel_config.distributed_executor_backend == "uni"


def test_the_users_classes_stay(make_config):
    config = make_config(
        parallel={"worker_cls": "mine.Worker", "distributed_executor_backend": "mp"},
        scheduler={"scheduler_cls": "mine.Scheduler"},
    )
    assert adjust(config, ABLE) == [
        Change("--distributed-executor-backend mp is replaced by uni: one worker drives the whole mesh")
    ]
    assert config.parallel_config.worker_cls == "mine.Worker"
    assert config.scheduler_config.scheduler_cls == "mine.Scheduler"


@pytest.mark.parametrize(("asked", "chosen"), [(None, 64), (16, 16), (32, 32), (64, 64), (128, 128)])
def test_block_size(make_config, asked, chosen):
    config = make_config(cache={} if asked is None else {"block_size": asked})
    adjust(config, ABLE)
    assert config.cache_config.block_size == chosen


def test_the_block_size_of_a_planned_cache_stays(make_config):
    config = make_config()
    config.cache_config.num_gpu_blocks = 7
    config.cache_config.block_size = 16
    adjust(config, ABLE)
    assert config.cache_config.block_size == 16


@pytest.mark.parametrize("asked", [-1, 21, 100])
def test_max_logprobs_is_lowered(make_config, asked):
    config = make_config(model={"max_logprobs": asked})
    assert adjust(config, ABLE) == [
        Change(f"--max-logprobs {asked} is lowered to 20, the most that is served", logging.WARNING)
    ]
    assert config.model_config.max_logprobs == 20


@pytest.mark.parametrize("asked", [0, 5, 20])
def test_max_logprobs_stays(make_config, asked):
    config = make_config(model={"max_logprobs": asked})
    assert adjust(config, ABLE) == []
    assert config.model_config.max_logprobs == asked


def test_a_quantization_that_only_the_user_names_is_dropped(make_config):
    config = make_config(model={"quantization": "fp8"})
    assert adjust(config, ABLE) == [
        Change(
            "--quantization fp8 is dropped: the adapter chooses the precision of its weights "
            "(--additional-config.tt.optimizations performance or accuracy)",
            logging.WARNING,
        )
    ]
    assert config.model_config.quantization is None
    assert config.quant_config is None


def test_a_checkpoints_quantization_stays(make_config):
    quantized = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    config = make_config(model={"config": quantized})
    assert adjust(config, ABLE) == []
    assert config.model_config.quantization == "fp8"


def test_a_capable_model_keeps_its_paths(make_config):
    config = make_config(scheduler={"async_scheduling": True, "long_prefill_token_threshold": 512})
    assert adjust(config, ABLE) == []
    assert config.cache_config.enable_prefix_caching
    assert config.scheduler_config.async_scheduling
    assert config.scheduler_config.enable_chunked_prefill
    assert config.scheduler_config.disable_chunked_mm_input
    assert config.scheduler_config.max_num_batched_tokens == 2048
    assert config.scheduler_config.long_prefill_token_threshold == 512


def test_a_plain_model_loses_them_with_a_line_each(make_config):
    config = make_config(scheduler={"async_scheduling": True, "max_num_scheduled_tokens": 1000})
    assert adjust(config, PLAIN) == [
        NO_CACHING,
        Change("async scheduling is off: TTLlamaForCausalLM does not declare supports_async_decode"),
        Change(
            f"{NO_CHUNKS}; max_num_batched_tokens is raised from 2048 to 4096, {FITS}; "
            f"max_num_scheduled_tokens is raised from 1000 to 4096, {FITS}"
        ),
    ]
    scheduler = config.scheduler_config
    assert not config.cache_config.enable_prefix_caching
    assert not scheduler.async_scheduling
    assert not scheduler.enable_chunked_prefill
    assert scheduler.max_num_batched_tokens == 4096
    assert scheduler.max_num_scheduled_tokens == 4096
    assert scheduler.max_num_encoder_input_tokens == 4096
    assert scheduler.encoder_cache_size == 4096
    scheduler.verify_max_model_len(4096)


@pytest.mark.parametrize(
    ("scheduler", "line", "budget"),
    [
        ({"max_num_batched_tokens": 8192}, NO_CHUNKS, 8192),
        (
            {"max_num_batched_tokens": 4096, "long_prefill_token_threshold": 512},
            f"{NO_CHUNKS}; long_prefill_token_threshold 512 is dropped, as it would split prompts",
            4096,
        ),
    ],
)
def test_the_budget_takes_a_whole_prompt(make_config, scheduler, line, budget):
    config = make_config(scheduler=scheduler | {"async_scheduling": False})
    assert adjust(config, PLAIN) == [NO_CACHING, Change(line)]
    assert config.scheduler_config.max_num_batched_tokens == budget
    assert config.scheduler_config.long_prefill_token_threshold == 0


@pytest.mark.parametrize("model", [PLAIN, ABLE])
def test_chunks_that_the_user_declines(make_config, model):
    config = make_config(
        cache={"enable_prefix_caching": False},
        scheduler={
            "async_scheduling": False,
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": 4096,
            "long_prefill_token_threshold": 128,
        },
    )
    assert adjust(config, model) == [Change("long_prefill_token_threshold 128 is dropped, as it would split prompts")]


def test_the_budget_follows_an_automatic_length(make_config):
    config = make_config(model={"max_model_len": -1})
    adjust(config, PLAIN)
    assert config.model_config.max_model_len == 4096
    assert config.scheduler_config.max_num_batched_tokens == 4096


def test_prefix_caching_leaves_nothing_behind(make_config):
    """What vLLM derives from the flag for layers with recurrent state goes with it."""
    config = make_config(cache={"mamba_block_size": 256, "mamba_cache_mode": "align"})
    assert adjust(config, PLAIN)[0] == NO_CACHING
    assert config.cache_config.mamba_block_size == 4096
    assert config.cache_config.mamba_cache_mode == "none"
    assert not config.cache_config.user_specified_mamba_block_size
    config.validate_mamba_block_size()


def test_recurrent_pages_follow_the_block_size(make_config):
    config = make_config()
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = config.cache_config.block_size
    adjust(config, ABLE)
    assert config.cache_config.mamba_block_size == config.cache_config.block_size == 64
    assert not config.scheduler_config.disable_chunked_mm_input
    config.validate_block_size()


def test_device_sampling_needs_a_model_that_declares_it(make_config):
    asked = {"tt": {"sample_on_device_mode": "all", "trace_mode": "none"}, "other": 1}
    config = make_config(cache={"enable_prefix_caching": False}, additional_config=asked)
    assert adjust(config, PLAIN)[-1] == Change(
        "sample_on_device_mode all is off: TTLlamaForCausalLM does not declare supports_sample_on_device",
        logging.WARNING,
    )
    assert TTConfig.from_additional_config(config.additional_config) == TTConfig(trace_mode="none")
    assert config.additional_config["other"] == 1
    assert asked["tt"]["sample_on_device_mode"] == "all"


def test_device_sampling_stays_for_a_model_that_declares_it(make_config):
    config = make_config(additional_config={"tt": {"sample_on_device_mode": "decode_only"}})
    assert adjust(config, ABLE) == []
    assert TTConfig.from_additional_config(config.additional_config).sample_on_device_mode == "decode_only"


@pytest.mark.parametrize("model", [PLAIN, ABLE], ids=["plain", "able"])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {
            "model": {"max_logprobs": -1, "quantization": "fp8", "max_model_len": -1},
            "cache": {"mamba_block_size": 256},
            "scheduler": {"async_scheduling": True, "long_prefill_token_threshold": 512},
            "additional_config": {"tt": {"sample_on_device_mode": "all"}},
        },
    ],
    ids=["defaults", "everything"],
)
def test_twice_is_once(make_config, model, parts):
    config = make_config(**parts)
    adjust(config, model)
    once = snapshot(config)
    assert adjust(config, model) == []
    assert snapshot(config) == once
