"""Loggers under ``vllm.tt``, so that vLLM's handlers and level apply to them in every process."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str) -> logging.Logger:
    """The logger of a module, from its ``__name__``: ``vllm_tt.worker.device`` logs as ``vllm.tt.worker.device``."""
    return logging.getLogger("vllm.tt." + name.removeprefix("vllm_tt."))
