"""The line that says at start-up what is served, where, how much at once, and which optional paths are on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.config import TTConfig
from vllm_tt.platform.lanes import lane_shape
from vllm_tt.platform.ranks import device_groups

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_tt.platform.policies import Model

__all__ = ["describe", "describe_mesh"]


def describe(config: VllmConfig, model: Model) -> str:
    """The start-up line of a settled configuration."""
    options = TTConfig.from_additional_config(config.additional_config)
    paths = {
        "prefix caching": _on(config.cache_config.enable_prefix_caching),
        "chunked prefill": _on(config.scheduler_config.enable_chunked_prefill),
        "async scheduling": _on(config.scheduler_config.async_scheduling) + _no_overlap(config, options),
        "decode interleave": _on(options.decode_interleave_enabled),
    }
    return (
        f"Serving {model.name} on {describe_mesh()}: {_topology(config)}, "
        f"at most {_longest(config)} each, {config.cache_config.block_size} tokens a page; "
        + ", ".join(f"{name} {how}" for name, how in paths.items())
        + f", traces {options.trace_mode}, {_sampling(options)}"
    )


def describe_mesh() -> str:
    """The mesh that MESH_DEVICE or TT_EMULATE names, as far as it is known before the device is opened."""
    grid, emulated = env.MESH_DEVICE.get(), env.EMULATE.get()
    named = os.environ.get(env.MESH_DEVICE.name, "").strip()
    mesh = "all devices" if grid is None else f"{grid}" if named[:1] in "(0123456789" else f"{named} ({grid})"
    return f"{mesh} of an emulated {emulated}" if emulated else mesh


def _topology(config: VllmConfig) -> str:
    shape, ranks = lane_shape(config), config.parallel_config.data_parallel_size
    if ranks > 1:
        groups = device_groups(config)
        devices = f" on the devices {' and '.join(map(str, groups))}, a {groups[0].grid} mesh each" if groups else ""
        return f"{ranks} engines x {shape.rows} = {ranks * shape.rows} requests at once{devices}"
    if shape.lanes == 1:
        return f"one engine, {shape.rows} requests at once"
    return f"one engine, {shape.lanes} lanes x {shape.per_lane} = {shape.rows} requests at once"


def _longest(config: VllmConfig) -> str:
    tokens = f"{config.model_config.max_model_len} tokens"
    return f"{tokens} or what the KV cache holds" if config.model_config.original_max_model_len == -1 else tokens


def _on(value: object) -> str:
    return "on" if value else "off"


def _no_overlap(config: VllmConfig, options: TTConfig) -> str:
    """Why decodes wait for one another although vLLM schedules them ahead."""
    if not config.scheduler_config.async_scheduling:
        return ""
    if options.sample_on_device_mode is None or options.always_compat_sampling:
        return " (no decode overlaps another: sampling on the host)"
    return "" if options.traces_decode else " (no decode overlaps another: traces none)"


def _sampling(options: TTConfig) -> str:
    if options.always_compat_sampling:
        return "sampling on the host (always_compat_sampling)"
    if options.sample_on_device_mode is None:
        return "sampling on the host"
    return f"sampling on the device (sample_on_device_mode {options.sample_on_device_mode})"
