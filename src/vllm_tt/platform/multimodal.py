"""Images: how many vLLM lets into a prompt, and that each is computed within one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.platform.compat import input_limit, longest_image
from vllm_tt.platform.settled import is_settled

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig
    from vllm.config.multimodal import MultiModalConfig

    from vllm_tt.contract import Capabilities

__all__ = ["limit_inputs", "room_for_images", "takes_images", "unlimited_encoder"]

_OTHER_MEDIA = ("video", "audio")
_IMAGE = "image"
_STEP_LIMITS = ("max_num_batched_tokens", "max_num_scheduled_tokens", "long_prefill_token_threshold")
"""What bounds the tokens of a request in a step; None and 0 bound nothing."""


def takes_images(model_config: ModelConfig, capabilities: Capabilities) -> bool:
    """Whether prompts of the model may have images."""
    return bool(model_config.is_multimodal_model) and capabilities.max_images_per_prompt != 0


def limit_inputs(multimodal: MultiModalConfig, most_images: int | None) -> str | None:
    """Let a prompt have as many images as the adapter takes and no other media; what was asked for in vain."""
    limits = multimodal.limit_per_prompt
    dropped = [f"{name}s" for name in _OTHER_MEDIA if name in limits and limits[name].count > 0]
    limits |= {name: input_limit(limits.get(name), 0) for name in _OTHER_MEDIA}
    asked = limits[_IMAGE].count if _IMAGE in limits else None
    if most_images is not None and (asked is None or asked > most_images):
        limits[_IMAGE] = input_limit(limits.get(_IMAGE), most_images)
        dropped += [] if asked is None else [f"more than {most_images} images a prompt"]
    return f"--limit-mm-per-prompt: the adapter does not take {' and '.join(dropped)}" if dropped else None


def room_for_images(config: VllmConfig) -> str | None:
    """Let a chunk hold the largest image; vLLM refuses to start otherwise, and would wait for such an image forever."""
    scheduler = config.scheduler_config
    if is_settled(config) or not scheduler.disable_chunked_mm_input:
        return None
    if (tokens := longest_image(config.model_config)) is None:
        return None
    raised = []
    for name in _STEP_LIMITS:
        before = getattr(scheduler, name)
        if before and before < tokens:
            setattr(scheduler, name, tokens)
            raised.append(f"{name} is raised from {before} to {tokens}")
    if not raised:
        return None
    smaller = "(--mm-processor-kwargs can make images smaller)"
    return f"{', '.join(raised)}, so that the largest image fits into a step {smaller}"


def unlimited_encoder(config: VllmConfig) -> None:
    """Adapters encode images within the prefill that needs them: no budget and no cache of vLLM's is to limit that.

    Twice, because images of requests that have finished still count while the next step is scheduled ahead. The size of
    the cache is what the front end refuses larger images by (a request may ask for larger ones than the server's): one
    that fits into no step would keep all behind it waiting. The scheduler's own cache is as large as the budget.
    """
    scheduler = config.scheduler_config
    most = 2 * config.model_config.max_model_len * scheduler.max_num_seqs
    scheduler.max_num_encoder_input_tokens = max(scheduler.max_num_encoder_input_tokens, most)
    scheduler.encoder_cache_size = min(limit for name in _STEP_LIMITS if (limit := getattr(scheduler, name)))
