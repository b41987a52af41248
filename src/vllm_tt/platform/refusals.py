"""What this platform cannot serve: each check raises an error that says what to use instead.

The checks see the configuration alone; they run before the model is looked up.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.config import TTConfig
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.config import VllmConfig

__all__ = [
    "REFUSALS",
    "CacheFormat",
    "EncoderDecoder",
    "Half",
    "ImageEmbeds",
    "KVTransfer",
    "LoRA",
    "LoadBalancing",
    "MultiNode",
    "ParallelSize",
    "Pooling",
    "PromptEmbeds",
    "PromptLogprobs",
    "Speculation",
    "StepLogFolder",
    "V2Runner",
    "refuse_request",
]


class ParallelSize(ConfigError):
    """{flag} {size} is not available: one worker drives the whole mesh, and the model spreads itself over it. Choose
    the mesh with MESH_DEVICE, for example MESH_DEVICE=T3K or MESH_DEVICE="(1,{size})", and leave out {flag}.
    """


class MultiNode(ConfigError):
    """--nnodes {nodes} is not available: a server drives the devices of one host. Start a server on each host and
    balance the load in front of them.
    """


class LoadBalancing(ConfigError):
    """{flag} is not available: a server runs all its engines itself. Start independent servers, each with its own
    TT_VISIBLE_DEVICES and --port and without --data-parallel options, and balance the load in front of them.
    """


class Speculation(ConfigError):
    """Speculative decoding ({method}) is not available. Leave out --speculative-config."""


class LoRA(ConfigError):
    """--enable-lora is not available: adapters take one set of weights. Merge the LoRA into the checkpoint and serve
    the result.
    """


class Pooling(ConfigError):
    """Pooling models (embedding, classification, reward) are not available: {model} was configured with the runner
    'pooling'. Serve a model that generates text, and leave out --runner and --convert.
    """


class EncoderDecoder(ConfigError):
    """Encoder-decoder models are not available: {model} is a {architecture}. Serve a decoder-only model."""


class PromptEmbeds(ConfigError):
    """--enable-prompt-embeds is not available: adapters take token ids. Leave it out and send the prompt as text or
    token ids.
    """


class ImageEmbeds(ConfigError):
    """--enable-mm-embeds is not available: adapters encode images themselves. Leave it out and send the images."""


class KVTransfer(ConfigError):
    """{flag} is not available: the KV cache stays on the mesh. Leave it out."""


class V2Runner(ConfigError):
    """VLLM_USE_V2_MODEL_RUNNER={value} is not available: the worker implements vLLM's V1 runner contract. Unset it or
    set it to 0.
    """


class StepLogFolder(ConfigError):
    """tt.step_log {path} cannot be written: {place} is {fault}. Name a file in a folder that the server may write."""


class Half(ConfigError):
    """--dtype float16 is not available: Tenstorrent devices compute in bfloat16 and float32. Use --dtype bfloat16,
    float32 or auto.
    """


class CacheFormat(ConfigError):
    """--kv-cache-dtype {asked} is not available: the adapter allocates the cache and chooses a device's formats itself.
    Use --kv-cache-dtype auto or bfloat16.
    """


class PromptLogprobs(ConfigError):
    """prompt_logprobs={count} is not available: prefill returns the logits of the last prompt token alone. Leave it
    out (in the completions API, do not ask for echo together with logprobs); logprobs of generated tokens are
    available.
    """


def refuse_v2_runner(_config: VllmConfig) -> None:
    import vllm.envs as envs

    if envs.VLLM_USE_V2_MODEL_RUNNER:
        raise V2Runner(value=1)


def refuse_parallel_sizes(config: VllmConfig) -> None:
    sizes = {
        "--tensor-parallel-size": "tensor_parallel_size",
        "--pipeline-parallel-size": "pipeline_parallel_size",
        "--prefill-context-parallel-size": "prefill_context_parallel_size",
        "--decode-context-parallel-size": "decode_context_parallel_size",
    }
    for flag, attribute in sizes.items():
        if (size := getattr(config.parallel_config, attribute)) > 1:
            raise ParallelSize(flag=flag, size=size)


def refuse_nodes(config: VllmConfig) -> None:
    if config.parallel_config.nnodes > 1:
        raise MultiNode(nodes=config.parallel_config.nnodes)


def refuse_shared_data_parallel(config: VllmConfig) -> None:
    """Engines of one server that another process starts or balances."""
    parallel = config.parallel_config
    if parallel.data_parallel_external_lb:
        raise LoadBalancing(flag="--data-parallel-external-lb (or --data-parallel-rank)")
    if parallel.data_parallel_hybrid_lb:
        raise LoadBalancing(flag="--data-parallel-hybrid-lb (or --data-parallel-start-rank)")
    if (local := parallel.data_parallel_size_local) != parallel.data_parallel_size:
        raise LoadBalancing(flag=f"--data-parallel-size-local {local} of {parallel.data_parallel_size}")
    if parallel.data_parallel_backend != "mp":
        raise LoadBalancing(flag=f"--data-parallel-backend {parallel.data_parallel_backend}")


def refuse_speculation(config: VllmConfig) -> None:
    if config.speculative_config is not None:
        raise Speculation(method=config.speculative_config.method)


def refuse_lora(config: VllmConfig) -> None:
    if config.lora_config is not None:
        raise LoRA


def refuse_model_kinds(config: VllmConfig) -> None:
    model = config.model_config
    if model.runner_type == "pooling":
        raise Pooling(model=model.model)
    if model.is_encoder_decoder:
        raise EncoderDecoder(model=model.model, architecture=model.architecture)


def refuse_prompt_embeds(config: VllmConfig) -> None:
    if config.model_config.enable_prompt_embeds:
        raise PromptEmbeds


def refuse_image_embeds(config: VllmConfig) -> None:
    multimodal = config.model_config.multimodal_config
    if multimodal is not None and multimodal.enable_mm_embeds:
        raise ImageEmbeds


def refuse_kv_transfer(config: VllmConfig) -> None:
    if config.cache_config.kv_offloading_size is not None:
        raise KVTransfer(flag="--kv-offloading-size")
    if config.kv_transfer_config is not None:
        raise KVTransfer(flag="--kv-transfer-config")
    if config.ec_transfer_config is not None:
        raise KVTransfer(flag="--ec-transfer-config")


def refuse_step_log(config: VllmConfig) -> None:
    if (path := TTConfig.from_additional_config(config.additional_config).step_log) is None:
        return
    file = Path(path).expanduser().absolute()
    if not file.parent.is_dir():
        raise StepLogFolder(path=path, place=file.parent, fault="not a folder")
    if file.is_dir():
        raise StepLogFolder(path=path, place=file, fault="a folder")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise StepLogFolder(path=path, place=file, fault="not writable")


def refuse_half(config: VllmConfig) -> None:
    import torch

    if config.model_config.dtype == torch.float16:
        raise Half


def refuse_cache_formats(config: VllmConfig) -> None:
    if (asked := config.cache_config.cache_dtype) not in ("auto", "bfloat16"):
        raise CacheFormat(asked=asked)


REFUSALS: tuple[Callable[[VllmConfig], None], ...] = (
    refuse_v2_runner,
    refuse_parallel_sizes,
    refuse_nodes,
    refuse_shared_data_parallel,
    refuse_speculation,
    refuse_lora,
    refuse_model_kinds,
    refuse_prompt_embeds,
    refuse_image_embeds,
    refuse_kv_transfer,
    refuse_step_log,
    refuse_half,
    refuse_cache_formats,
)
"""In the order of the checks: what rules out the most comes first."""


def refuse_request(params: object) -> None:
    """Refuse what no step can compute for a request; the error becomes HTTP 400."""
    if (count := getattr(params, "prompt_logprobs", None)) is not None:
        raise PromptLogprobs(count=count)
