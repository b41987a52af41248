"""The demo's real checkpoint, in the cache that the demo itself uses: written once for all runs."""

from vllm_tt import env
from vllm_tt.demo.checkpoint import prepare

CACHE = env.CACHE_DIR.get()
"""Taken when tests are collected, before any test points the variable elsewhere."""


def checkpoint():
    """The folder of SmolLM2-135M-Instruct, stored as bfloat16."""
    return prepare(cache=CACHE)
