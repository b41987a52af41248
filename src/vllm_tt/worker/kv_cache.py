"""How many pages the KV cache has, and which context length they serve."""

from __future__ import annotations

import operator
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.errors import ConfigError
from vllm_tt.log import get_logger
from vllm_tt.platform.compat import kv_cache_groups
from vllm_tt.worker.kv_groups import request_pages, window_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, KVCacheSpec

    from vllm_tt.config import LaneShape

__all__ = [
    "ContextTooLong",
    "KVPlan",
    "NoPages",
    "UnservedSpec",
    "WrongSpecs",
    "WrongTokenCount",
    "kv_cache_dtype",
    "layer_specs",
]

log = get_logger(__name__)

DEFAULT_MAX_TOKENS = 131_072
"""Tokens of all users of a model that does not say (tt-metal's convention)."""


MOST_TOKENS = 2**28
"""More is a mistake, such as a number of bytes; the scheduler's own records of so many pages would fill the host."""


class ContextTooLong(ConfigError):
    """--max-model-len {asked} does not fit: the KV cache of {model} holds {pool} tokens on this mesh.
    Use --max-model-len {pool} or less, or -1 for the longest that fits.
    """


class WrongTokenCount(ConfigError):
    """{owner}.get_max_tokens_all_users() must return a number of tokens from 1 to {most}, got {found}."""


class WrongSpecs(ConfigError):
    """{owner}.get_kv_cache_spec() must return a dict of vLLM's KV cache specs by layer name, or None for full
    attention in every layer; got {found}.
    """


class UnservedSpec(ConfigError):
    """{owner}.get_kv_cache_spec() gives {layer} a {found}; layers may have full attention, a sliding window or chunked
    local attention. State that is kept for each request is the adapter's own, by slot, and has no spec.
    """


class NoPages(ConfigError):
    """--num-gpu-blocks-override {pages} leaves no page for requests: one is the null page. Use at least 2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KVPlan:
    """The KV cache of one lane."""

    pages: int
    """Including the null page."""
    block_size: int
    max_tokens: int
    """Tokens that the model promises to hold; the rest of the pool is headroom, a page a row."""

    @classmethod
    def make(cls, adapter: type, vllm_config: VllmConfig, shape: LaneShape, chips: int) -> KVPlan:
        """The plan for an adapter class on a mesh of ``chips``.

        The operator's --num-gpu-blocks-override wins over what the class says.
        """
        block_size = vllm_config.cache_config.block_size
        groups = kv_cache_groups(vllm_config, layer_specs(adapter, vllm_config))
        in_flight = vllm_config.scheduler_config.max_num_batched_tokens
        override = vllm_config.cache_config.num_gpu_blocks_override
        if override is not None:
            if override < 2:
                raise NoPages(pages=override)
            longest = _longest_request(groups, vllm_config, override - 1)
            return cls(pages=override, block_size=block_size, max_tokens=longest)
        tokens = _max_tokens(adapter, vllm_config, shape, chips)
        pages = 0
        for group in groups:
            # A page a row of headroom: rows end inside a page. It also covers the null page.
            whole = -(-tokens // group.kv_cache_spec.block_size) + shape.per_lane
            # Two steps are in flight when they are scheduled ahead.
            windows = window_pages(group, shape.per_lane, 2 * in_flight)
            pages += min(windows, whole) if windows else whole
        return cls(pages=pages, block_size=block_size, max_tokens=tokens)

    def fit_context(self, vllm_config: VllmConfig) -> None:
        """Refuse a context that the pool cannot hold; with --max-model-len -1, cut it to the pool.

        Called before the weights are loaded. vLLM hands the cut length on to the API server.
        """
        model = vllm_config.model_config
        if model.max_model_len <= self.max_tokens:
            return
        if model.original_max_model_len != -1:
            raise ContextTooLong(asked=model.max_model_len, model=model.model, pool=self.max_tokens)
        log.info(
            "--max-model-len -1: %d tokens, what the KV cache holds (the model allows %d)",
            self.max_tokens,
            model.max_model_len,
        )
        model.max_model_len = self.max_tokens


def _longest_request(groups: Sequence[KVCacheGroupSpec], vllm_config: VllmConfig, pages: int) -> int:
    """Tokens of the longest request that ``pages`` hold; as many as there can be where all layers have windows."""
    most = range(1, MOST_TOKENS + 1)
    return bisect_right(most, pages, key=lambda tokens: request_pages(groups, vllm_config, tokens))


def layer_specs(adapter: type, vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    """What each attention layer caches: the class's own answer, else full attention in every layer."""
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        KVCacheSpec,
        SlidingWindowSpec,
    )

    declared = getattr(adapter, "get_kv_cache_spec", None)
    if declared is not None and (specs := declared(vllm_config)) is not None:
        if not isinstance(specs, dict) or not specs or not all(isinstance(s, KVCacheSpec) for s in specs.values()):
            raise WrongSpecs(owner=adapter.__name__, found=repr(specs))
        for layer, spec in specs.items():
            if not isinstance(spec, (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec)):
                raise UnservedSpec(owner=adapter.__name__, layer=layer, found=type(spec).__name__)
        return specs
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    spec = FullAttentionSpec(
        block_size=vllm_config.cache_config.block_size,
        num_kv_heads=model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        dtype=kv_cache_dtype(vllm_config),
    )
    return {f"model.layers.{layer}.self_attn": spec for layer in range(model.get_num_layers(parallel))}


def kv_cache_dtype(vllm_config: VllmConfig) -> torch.dtype:
    """The model's dtype unless --kv-cache-dtype names another."""
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE

    return STR_DTYPE_TO_TORCH_DTYPE.get(vllm_config.cache_config.cache_dtype, vllm_config.model_config.dtype)


def _max_tokens(adapter: type, vllm_config: VllmConfig, shape: LaneShape, chips: int) -> int:
    ask = getattr(adapter, "get_max_tokens_all_users", None)
    if ask is None:
        return DEFAULT_MAX_TOKENS
    model = vllm_config.model_config
    tokens = ask(
        model_name=model.model,
        num_devices=chips // shape.lanes,
        tt_data_parallel=shape.lanes,
        max_model_len=model.max_model_len,
        max_num_seqs=shape.per_lane,
    )
    # numpy's integers count, a bool does not
    if isinstance(tokens, bool) or not hasattr(tokens, "__index__") or not 0 < tokens <= MOST_TOKENS:
        raise WrongTokenCount(owner=adapter.__name__, most=MOST_TOKENS, found=repr(tokens))
    return operator.index(tokens)
