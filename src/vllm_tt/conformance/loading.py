"""Loads what a check needs: the checkpoint's configuration, the adapter class, the adapter and its KV cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.locate import locate
from vllm_tt.conformance.layers import Pool, groups_of
from vllm_tt.conformance.rig import Rig, Sizes
from vllm_tt.errors import ConfigError
from vllm_tt.models.entry import Entry
from vllm_tt.worker.kv_cache import DEFAULT_MAX_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from vllm_tt.conformance.request import Request
    from vllm_tt.contract import Capabilities

__all__ = ["CheckpointNotRead", "Subject", "UnknownDtype", "load_subject", "read_config"]

_ROWS_IN_CASES = 4


class CheckpointNotRead(ConfigError):
    """The configuration of {model} cannot be read: {cause}. Name a checkpoint folder, or a Hub model that is
    reachable or already downloaded.
    """


class UnknownDtype(ConfigError):
    """{found!r} is no dtype of torch; use bfloat16, float16 or float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What is checked: an adapter class with the configuration it is given."""

    adapter_class: type[Any]
    capabilities: Capabilities
    config: Any
    dtype: torch.dtype
    sizes: Sizes
    folder: Path
    chips: int
    """Of the mesh."""
    request: Request

    def in_lanes(self, lanes: int) -> Subject:
        """The same with ``lanes`` lanes, each as large as its only one was."""
        sizes = _sizes(self.request, self.adapter_class, self.config.get_text_config(), self.chips, lanes)
        return replace(self, sizes=sizes)

    def load(self, device: Any) -> Any:
        """The adapter, its weights loaded."""
        return self.adapter_class.initialize_vllm_model(
            self.config,
            device,
            self.sizes.slots,
            max_seq_len=self.sizes.max_seq_len,
            tt_data_parallel=self.sizes.lanes,
            optimizations=None,
        )

    def rig(self, adapter: Any) -> Rig:
        """The adapter with its KV cache allocated."""
        rotary = getattr(self.config.get_text_config(), "rope_parameters", None) or {}
        images = self.capabilities.max_images_per_prompt != 0
        sizes = replace(self.sizes, request_rope=images and "mrope_section" in rotary)
        groups = groups_of(self.adapter_class, self.config, dtype=self.dtype, block_size=sizes.page_size)
        pool = Pool(page_size=sizes.page_size, max_seq_len=sizes.max_seq_len, groups=groups)
        if groups is not None:
            looked_back = [window for window in pool.windows if window is not None]
            sizes = replace(sizes, layers=len(groups.specs), window=min(looked_back, default=None))
            cache = groups.allocate(adapter, pool.size(sizes.pages), self.chips // sizes.lanes)
        elif hasattr(adapter, "allocate_kv_cache_per_layer"):
            shapes = [(sizes.kv_shape, self.dtype, layer) for layer in range(sizes.layers)]
            cache = adapter.allocate_kv_cache_per_layer(shapes)
        else:
            cache = adapter.allocate_kv_cache(sizes.kv_shape, self.dtype, sizes.layers)
        return Rig(adapter, cache, sizes, self.capabilities, pool)


def load_subject(request: Request, config: Any, chips: int) -> Subject:
    """Import the adapter class and settle the sizes; raises the errors of ``models.loader``."""
    bundle = locate(request.folder)
    entry = Entry.of_bundle(bundle.metadata.arch, bundle)
    adapter_class = entry.load()
    text = config.get_text_config()
    longest = getattr(text, "max_position_embeddings", None) or request.max_model_len
    request = replace(request, max_model_len=min(request.max_model_len, longest))
    return Subject(
        adapter_class=adapter_class,
        capabilities=entry.capabilities(),
        config=config,
        dtype=_dtype(request, text),
        sizes=_sizes(request, adapter_class, text, chips, lanes=1),
        folder=bundle.folder,
        chips=chips,
        request=request,
    )


def read_config(model: str) -> Any:
    """The checkpoint's configuration, as the adapter gets it."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        cause = " ".join(str(error).split())[:300].rstrip(".")
        raise CheckpointNotRead(model=model, cause=cause) from error


def _dtype(request: Request, text: Any) -> torch.dtype:
    import torch

    found = request.dtype or getattr(text, "dtype", None) or "bfloat16"
    dtype = getattr(torch, found, None) if isinstance(found, str) else found
    if not isinstance(dtype, torch.dtype):
        raise UnknownDtype(found=found)
    return dtype


def _sizes(request: Request, adapter_class: type[Any], text: Any, chips: int, lanes: int) -> Sizes:
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
    pages = _pages(request, adapter_class, chips // lanes, lanes)
    return Sizes(
        slots=request.max_num_seqs * lanes,
        page_size=request.block_size,
        pages=pages,
        max_seq_len=request.max_model_len,
        vocab_size=text.vocab_size,
        kv_shape=(pages, kv_heads // min(chips // lanes, kv_heads), request.block_size, head_size),
        layers=text.num_hidden_layers,
        lanes=lanes,
    )


def _pages(request: Request, adapter_class: type[Any], chips: int, lanes: int) -> int:
    """Of a lane of ``chips`` chips. What a server would allocate; where numbers are compared, what the cases need."""
    if not request.dry_run:
        return 1 + _ROWS_IN_CASES * -(-request.max_model_len // request.block_size)
    ask = getattr(adapter_class, "get_max_tokens_all_users", None)
    tokens = DEFAULT_MAX_TOKENS
    if ask is not None:
        tokens = ask(
            model_name=request.model,
            num_devices=chips,
            tt_data_parallel=lanes,
            max_model_len=request.max_model_len,
            max_num_seqs=request.max_num_seqs,
        )
    return -(-tokens // request.block_size) + request.max_num_seqs
