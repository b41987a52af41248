"""How the engine's process starts: as a fork that shares what is imported, or anew, importing vLLM again.

Importing vLLM is most of a server's start. A fork saves the second time, but threads and open devices
of this process do not live on in it.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.platform import compat, inherited
from vllm_tt.platform.policies import Change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from vllm.config import VllmConfig

__all__ = ["TRIAL_SECONDS", "Start", "choose", "fork_computes", "obstacles", "settle_start"]

TRIAL_SECONDS = 3.0
"""How long a trial fork may take to compute; it needs 0.05 s, and 0.1 s on a machine that has twice too much to do."""
_PARALLEL = 1 << 17
"""Numbers that torch adds up on more than one thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How the engine's process starts, and what the log says of it."""

    method: Literal["fork", "spawn"]
    change: Change | None = None


def settle_start(config: VllmConfig) -> Change | None:
    """Choose how the engine starts. In the process that will start it, with a configuration that is otherwise settled.

    TT_ENGINE_START has the first word, then vLLM's own variable where the user or their script has set it.
    """
    import vllm.envs as envs

    if not envs.VLLM_ENABLE_V1_MULTIPROCESSING:
        return None  # a script's engine runs in this process
    wanted = env.ENGINE_START.get()
    if wanted == "auto":
        wanted = compat.chosen_start_method() or "auto"
    start = choose(wanted, None if wanted == "spawn" else next(obstacles(config), None))
    compat.set_start_method(start.method)
    if start.method == "fork":
        inherited.let_go_in_the_engine()
        if compat.is_command_line():
            gc.freeze()  # what a server has imported stays; a script's objects are its own
    return start.change


def choose(wanted: str, obstacle: str | None) -> Start:
    """From what is asked for (fork, spawn or auto) and what speaks against a fork, in words."""
    if wanted == "spawn":
        return Start(method="spawn")
    if obstacle is None:
        return Start(method="fork")
    if wanted == "fork":
        text = f"The engine is forked, as asked for, although {obstacle}: it may hang. TT_ENGINE_START=spawn is safe"
        return Start(method="fork", change=Change(text, logging.WARNING))
    text = f"The engine's process imports vLLM again, which a fork of this one would save, because {obstacle}"
    return Start(method="spawn", change=Change(text))


def obstacles(config: VllmConfig) -> Iterator[str]:
    """What speaks against a fork of this process, the cheapest to find out first."""
    if "ttnn" in sys.modules:
        yield "ttnn is loaded in this process"
    if others := [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]:
        yield f"this process runs other threads ({', '.join(others)})"
    if config.model_config.is_multimodal_model:
        yield "the processor of a multimodal model may compute in this process before the engine starts"
    if config.observability_config.otlp_traces_endpoint:
        yield "this process exports traces (--otlp-traces-endpoint)"
    if config.parallel_config.numa_bind:
        yield "a fork cannot be bound to a NUMA node (--numa-bind)"
    if not fork_computes():
        yield "torch has computed on several threads in this process"


def fork_computes() -> bool:
    """Whether torch can compute in a fork of this process, found out by a trial.

    OpenMP's threads do not live on in a fork. Where this thread has used them, the next computation
    on several threads waits for them forever; no function tells.
    """
    trial = multiprocessing.get_context("fork").Process(target=_compute, name="ForkTrial", daemon=True)
    trial.start()
    try:
        trial.join(TRIAL_SECONDS)
        return trial.exitcode == 0
    finally:
        trial.kill()
        trial.join()
        trial.close()


def _compute() -> None:
    import torch

    torch.ones(_PARALLEL).sum()
