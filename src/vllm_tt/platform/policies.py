"""How a configuration is adjusted to the platform and to what the model declares.

Each policy is a small function over the configuration that returns what it changed and why, or None.
A policy applied twice changes nothing the second time: vLLM repeats its hooks in every API server
process and at the end of each engine's start, when the device is open.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.config import ADDITIONAL_CONFIG_KEY, TTConfig
from vllm_tt.platform.compat import kv_cache_is_planned
from vllm_tt.platform.multimodal import limit_inputs, room_for_images, unlimited_encoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig

    from vllm_tt.contract import Capabilities

__all__ = [
    "ADJUSTMENTS",
    "BLOCK_SIZE",
    "MAX_LOGPROBS",
    "POLICIES",
    "SCHEDULER",
    "WORKER",
    "Change",
    "Model",
    "adjust",
    "compact_json",
]

WORKER = "vllm_tt.worker.worker.TTWorker"
SCHEDULER = "vllm_tt.scheduler.phase.TTScheduler"
BLOCK_SIZE = 64
"""Tokens in a KV page unless --block-size says otherwise; a multiple of the device's tiles of 32."""
MAX_LOGPROBS = 20
"""What the OpenAI API allows, and fewer than the 32 that a device computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The served model, as the policies see it."""

    name: str
    """Its registered name, such as TTLlamaForCausalLM."""
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the log: what was changed and why."""

    text: str
    level: int = logging.INFO


def adjust(config: VllmConfig, model: Model) -> list[Change]:
    """Apply every policy; the changes, in order."""
    changes = [adjustment(config) for adjustment in ADJUSTMENTS] + [policy(config, model) for policy in POLICIES]
    return [change for change in changes if change is not None]


def use_our_classes(config: VllmConfig) -> Change | None:
    """One worker in the engine's process, fed by the phase scheduler; a class that the user chose stays."""
    parallel, scheduler = config.parallel_config, config.scheduler_config
    if parallel.worker_cls == "auto":
        parallel.worker_cls = WORKER
    if scheduler.scheduler_cls is None:
        scheduler.scheduler_cls = SCHEDULER
    asked, parallel.distributed_executor_backend = parallel.distributed_executor_backend, "uni"
    # vLLM itself chooses mp for several engines.
    if asked in (None, "uni", "mp" if parallel.data_parallel_size > 1 else "uni"):
        return None
    return Change(f"--distributed-executor-backend {asked} is replaced by uni: one worker drives the whole mesh")


def choose_block_size(config: VllmConfig) -> Change | None:
    cache = config.cache_config
    if cache.user_specified_block_size or kv_cache_is_planned(config):
        return None
    if cache.mamba_block_size == cache.block_size and not cache.user_specified_mamba_block_size:
        cache.mamba_block_size = BLOCK_SIZE
    cache.block_size = BLOCK_SIZE
    return None


def limit_logprobs(config: VllmConfig) -> Change | None:
    asked = config.model_config.max_logprobs
    if 0 <= asked <= MAX_LOGPROBS:
        return None
    config.model_config.max_logprobs = MAX_LOGPROBS
    return Change(f"--max-logprobs {asked} is lowered to {MAX_LOGPROBS}, the most that is served", logging.WARNING)


def compact_json(config: VllmConfig) -> None:
    """No free whitespace in structured output, in which greedy decoding can loop.

    For the engine's process, before it has a structured request. In the front end vLLM refuses this for the backend
    "auto", which stands for two that know it; others do not look at it.
    """
    config.structured_outputs_config.disable_any_whitespace = True


def weight_format(config: VllmConfig) -> Change | None:
    """A checkpoint's own quantization is the adapter's to read; one that is only asked for does nothing."""
    asked = config.model_config.quantization
    if asked is None or getattr(config.model_config.hf_config, "quantization_config", None) is not None:
        return None
    config.model_config.quantization = None
    config.quant_config = None
    return Change(
        f"--quantization {asked} is dropped: the adapter chooses the precision of its weights "
        "(--additional-config.tt.optimizations performance or accuracy)",
        logging.WARNING,
    )


def prefix_caching(config: VllmConfig, model: Model) -> Change | None:
    cache = config.cache_config
    if not cache.enable_prefix_caching or model.capabilities.supports_prefix_caching:
        return None
    cache.enable_prefix_caching = False
    # What vLLM has by now derived from the flag for layers with recurrent state.
    if cache.mamba_block_size is not None:
        cache.mamba_block_size = config.model_config.max_model_len
        cache.user_specified_mamba_block_size = False
    cache.mamba_cache_mode = "none"
    return Change(f"prefix caching is off: {model.name} does not declare supports_prefix_caching")


def async_scheduling(config: VllmConfig, model: Model) -> Change | None:
    if not config.scheduler_config.async_scheduling or model.capabilities.supports_async_decode:
        return None
    config.scheduler_config.async_scheduling = False
    return Change(f"async scheduling is off: {model.name} does not declare supports_async_decode")


def chunked_prefill(config: VllmConfig, model: Model) -> Change | None:
    """Chunks for the models that declare them; otherwise every prompt must fit into one step."""
    scheduler = config.scheduler_config
    if scheduler.enable_chunked_prefill and model.capabilities.supports_chunked_prefill:
        # Recurrent state cached per page wants chunks that end within an image; vLLM insists on it.
        if config.cache_config.mamba_cache_mode != "align":
            scheduler.disable_chunked_mm_input = True
        return None
    declined = scheduler.enable_chunked_prefill
    scheduler.enable_chunked_prefill = False
    changed = _fit_whole_prompts(config)
    if declined:
        changed.insert(0, f"chunked prefill is off: {model.name} does not declare supports_chunked_prefill")
    return Change("; ".join(changed)) if changed else None


def _fit_whole_prompts(config: VllmConfig) -> list[str]:
    """Let one step take the longest prompt; what was changed."""
    scheduler, longest = config.scheduler_config, config.model_config.max_model_len
    changed = []
    for budget in ("max_num_batched_tokens", "max_num_scheduled_tokens"):
        tokens = getattr(scheduler, budget)
        if tokens is not None and tokens < longest:
            setattr(scheduler, budget, longest)
            changed.append(f"{budget} is raised from {tokens} to {longest}, so that a whole prompt fits into a step")
    # Sizes that vLLM has derived from the budget.
    for derived in ("max_num_encoder_input_tokens", "encoder_cache_size"):
        setattr(scheduler, derived, max(getattr(scheduler, derived), scheduler.max_num_batched_tokens))
    if (threshold := scheduler.long_prefill_token_threshold) > 0:
        scheduler.long_prefill_token_threshold = 0
        changed.append(f"long_prefill_token_threshold {threshold} is dropped, as it would split prompts")
    return changed


def images(config: VllmConfig, model: Model) -> Change | None:
    """Images as many as the adapter takes, each within one step; no other media."""
    if config.model_config.multimodal_config is None:
        return None
    changed = [
        limit_inputs(config.model_config.multimodal_config, model.capabilities.max_images_per_prompt),
        room_for_images(config),
    ]
    unlimited_encoder(config)
    texts = [text for text in changed if text]
    return Change("; ".join(texts)) if texts else None


def device_sampling(config: VllmConfig, model: Model) -> Change | None:
    options = TTConfig.from_additional_config(config.additional_config)
    if options.sample_on_device_mode is None or model.capabilities.supports_sample_on_device:
        return None
    given = {**config.additional_config[ADDITIONAL_CONFIG_KEY], "sample_on_device_mode": None}
    config.additional_config = {**config.additional_config, ADDITIONAL_CONFIG_KEY: given}
    return Change(
        f"sample_on_device_mode {options.sample_on_device_mode} is off: "
        f"{model.name} does not declare supports_sample_on_device",
        logging.WARNING,
    )


ADJUSTMENTS: tuple[Callable[[VllmConfig], Change | None], ...] = (
    use_our_classes,
    choose_block_size,
    limit_logprobs,
    weight_format,
)
"""What holds for every model."""

POLICIES: tuple[Callable[[VllmConfig, Model], Change | None], ...] = (
    prefix_caching,
    async_scheduling,
    chunked_prefill,
    images,
    device_sampling,
)
"""What depends on the model, in order: chunked prefill looks at what prefix caching left, images at the budgets."""
