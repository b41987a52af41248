"""What depends on vLLM's release, each shim with the release and the reason. Features are detected, never versions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["ADMISSION_CAPS", "is_further_front_end", "kv_cache_is_planned", "pin_v1_runner", "thinking_budgets"]

ADMISSION_CAPS = ("max_num_running_reqs", "max_num_active_reqs")
"""The scheduler's admission caps, of which it has one or both: 0.31 added the second and asserts the first."""


def pin_v1_runner() -> None:
    """Choose the V1 runner contract unless the user chose one.

    0.25.1 made V2 the default for dense models where Triton is found; 0.33 reads the variable before
    the platform's configuration hooks run. Hence the call in every entry point and hook.
    """
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")


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
