"""What depends on vLLM's release, each shim with the release and the reason. Features are detected, never versions."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess
    from types import ModuleType

    from vllm.config import ModelConfig, VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, KVCacheSpec
    from vllm.v1.metrics.stats import SchedulerStats

__all__ = [
    "ADMISSION_CAPS",
    "chosen_start_method",
    "configure_reasoning",
    "default_to_spawn",
    "is_command_line",
    "input_limit",
    "is_engine",
    "is_further_front_end",
    "kv_cache_groups",
    "kv_cache_is_planned",
    "longest_image",
    "outlive_repeated_signals",
    "pin_v1_runner",
    "set_start_method",
    "tell_counts",
    "thinking_budgets",
    "told_counts",
    "when_configured",
]

ADMISSION_CAPS = ("max_num_running_reqs", "max_num_active_reqs")
"""The scheduler's admission caps, of which it has one or both: 0.31 added the second and asserts the first."""
_START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
"""Fork by default; the command line sets spawn where it is not set (all releases)."""
_COMMAND_LINES = ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server")


def kv_cache_groups(config: VllmConfig, specs: dict[str, KVCacheSpec]) -> list[KVCacheGroupSpec]:
    """How vLLM groups layers by what they cache; 0.33 moved the function."""
    try:
        from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
    except ImportError:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_groups
    groups: list[KVCacheGroupSpec] = get_kv_cache_groups(config, dict(specs))
    return groups


def input_limit(options: Any, count: int) -> Any:
    """A modality's limit as the configuration holds it, with the other ``options`` that it had (all releases)."""
    from dataclasses import replace

    from vllm.config.multimodal import BaseDummyOptions

    return BaseDummyOptions(count=count) if options is None else replace(options, count=count)


def longest_image(model_config: ModelConfig) -> int | None:
    """Tokens of the largest image that the model's processor makes; None where prompts may have no image.

    Where vLLM works it out for the scheduler differs between releases; this asks the processor as they do.
    """
    from vllm.multimodal import MULTIMODAL_REGISTRY

    if not MULTIMODAL_REGISTRY.supports_multimodal_inputs(model_config):
        return None
    processor = MULTIMODAL_REGISTRY.create_processor(model_config)
    counts = {"image": 1}
    known = processor.info.get_mm_max_tokens_per_item(seq_len=model_config.max_model_len, mm_counts=counts)
    if known is not None:
        return known.get("image")
    made = MULTIMODAL_REGISTRY.get_dummy_mm_inputs(model_config, mm_counts=counts, processor=processor)
    return sum(item.length for item in made["mm_placeholders"].get("image", ()))


def tell_counts(stats: SchedulerStats, counts: dict[str, int]) -> None:
    """Let the engine's statistics carry our counts to the server; `told_counts` takes them out there.

    Fields that vLLM does not declare are lost on the way (all releases). Of those that it does, the numbers of requests
    by LoRA adapter are read by nobody, as LoRA is refused.
    """
    stats.waiting_lora_adapters = counts


def told_counts(stats: SchedulerStats) -> dict[str, int]:
    """What `tell_counts` sent along."""
    return stats.waiting_lora_adapters


def pin_v1_runner() -> None:
    """Choose the V1 runner contract unless the user chose one.

    0.25.1 made V2 the default for dense models where Triton is found; 0.33 reads the variable before
    the platform's configuration hooks run. Hence the call in every entry point and hook.
    """
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")


@functools.cache
def chosen_start_method() -> str | None:
    """The start method that the user or their script has chosen, read before `default_to_spawn` sets one.

    What the command line sets is no choice: it looks like one, but was not there when the process began.
    """
    value = os.environ.get(_START_METHOD)
    born_with = b"\0" + Path("/proc/self/environ").read_bytes()
    if value == "spawn" and is_command_line() and f"\0{_START_METHOD}=".encode() not in born_with:
        return None
    return value


def default_to_spawn() -> None:
    """Until the platform has settled how the engine starts: vLLM refuses settings that a fork would not suit."""
    chosen_start_method()
    os.environ.setdefault(_START_METHOD, "spawn")


def set_start_method(method: str) -> None:
    """Have vLLM start its processes by fork or spawn; it reads the variable when it does (all releases)."""
    os.environ[_START_METHOD] = method


def is_engine(process: BaseProcess) -> bool:
    """Whether a process is an engine, or what coordinates several: vLLM names them so."""
    return process.name.startswith(("EngineCore", "VLLM_DP_Coordinator"))


def outlive_repeated_signals() -> None:
    """Have an engine of this process that is asked to end ignore further requests, which would kill it as it ends.

    Before it closes anything it gives SIGTERM and SIGINT back to the system (all releases). The second request is
    common: one reaches the whole process group, and the server passes its own on.
    """
    from vllm.v1.engine import core

    if not isinstance(core.signal, _DeafSignals):
        core.signal = _DeafSignals(core.signal)


class _DeafSignals:
    """The module ``signal`` for one that uses it; what it gives back to the system is ignored from then on."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def signal(self, number: int, handler: Any) -> Any:
        ours = self._module.SIG_IGN if handler is self._module.SIG_DFL else handler
        return self._module.signal(number, ours)


def is_command_line() -> bool:
    """Whether this process is a server of vLLM's command line, rather than a script that uses vLLM."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _COMMAND_LINES[0] in sys.modules or getattr(main, "name", None) in _COMMAND_LINES


def is_further_front_end(config: VllmConfig) -> bool:
    """Whether this process is one of several API servers, which repeat the parent's configuration.

    The parent of several has rank -1, a lone server rank 0; both attributes are private in all releases.
    """
    parallel = config.parallel_config
    return getattr(parallel, "_api_process_count", 1) > 1 and getattr(parallel, "_api_process_rank", 0) >= 0


def kv_cache_is_planned(config: VllmConfig) -> bool:
    """Whether the engine has sized its KV cache: from then on the block size is not ours to choose.

    The configuration hooks run once more at the end of each engine's start (all releases).
    """
    return config.cache_config.num_gpu_blocks is not None


def thinking_budgets(config: VllmConfig, rows: int) -> Any | None:
    """What enforces ``thinking_token_budget`` in a batch of ``rows``; None where reasoning is not configured.

    The sampler reads it from the sampling metadata (0.26); where it does not exist, no sampler would ask for it.
    """
    try:
        from vllm.v1.sample.thinking_budget_state import maybe_create_thinking_budget_state_holder as create
    except ImportError:
        return None
    import torch

    return create(
        reasoning_config=config.reasoning_config,
        max_num_seqs=rows,
        num_spec_tokens=0,
        device=torch.device("cpu"),
        is_pin_memory=False,
    )


def configure_reasoning(config: VllmConfig, parser: str) -> None:
    """What --reasoning-parser does to the configuration beside naming the parser; vLLM looks its tokens up later.

    Where the release has no such configuration (added by 0.26), nothing.
    """
    try:
        from vllm.config.reasoning import ReasoningConfig
    except ImportError:
        return
    if config.reasoning_config is None:
        config.reasoning_config = ReasoningConfig()
    config.reasoning_config.reasoning_parser = parser


def when_configured(hand_over: Callable[[VllmConfig, argparse.Namespace], None]) -> None:
    """Call ``hand_over`` with each configuration that is made of a parsed command line, and with that.

    The front end goes on reading the command line, which no hook of the platform is given (all releases).
    """
    from vllm.engine.arg_utils import EngineArgs

    theirs = EngineArgs.from_cli_args.__func__
    if theirs.__module__ == __name__:
        return

    def from_cli_args(cls: type[Any], args: argparse.Namespace) -> Any:
        made = theirs(cls, args)
        create = made.create_engine_config

        def create_engine_config(*given: Any, **named: Any) -> VllmConfig:
            config = create(*given, **named)
            hand_over(config, args)
            return config

        made.create_engine_config = create_engine_config
        return made

    EngineArgs.from_cli_args = classmethod(from_cli_args)
