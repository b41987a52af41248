"""Chunks that begin and end outside of images.

The tokens of an image may attend to each other in both directions, and an encoder computes it whole. Where chunks begin
is also up to the prefix cache, whose pages know nothing of images. Where they end vLLM looks to, but not for an image
that a chunk begins with, and not for one that its encoder cache has from another request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.request import Request

__all__ = ["keep_images_whole", "whole_images"]


def keep_images_whole(manager: KVCacheManager) -> None:
    """Shorten what ``manager`` finds for a request to the start of the image that it would end within."""
    find = manager.get_computed_blocks

    def find_whole(request: Request) -> Any:
        return _find_whole(manager, find, request) if request.mm_features else find(request)

    manager.get_computed_blocks = find_whole


def whole_images(request: Request, start: int, count: int) -> int:
    """How many tokens a chunk may hold, at most ``count`` from ``start`` on: those before an image it would cut."""
    cut = _cut_image(request, start + count)
    return count if cut is None else max(cut - start, 0)


class _Until:
    """A request as far as the token at ``end``; the prefix cache is asked about the tokens before it."""

    def __init__(self, request: Request, end: int) -> None:
        self._request = request
        self.num_tokens = end + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def _find_whole(manager: KVCacheManager, find: Callable[[Any], Any], request: Request) -> Any:
    logs, manager.log_stats = manager.log_stats, False  # a request counts once
    try:
        found = find(request)
        while (start := _cut_image(request, found[1])) is not None:
            found = find(_Until(request, start))
    finally:
        manager.log_stats = logs
    if logs and manager.prefix_cache_stats is not None and manager.enable_caching:
        preempted = request.num_preemptions > 0
        manager.prefix_cache_stats.record(num_tokens=request.num_tokens, num_hits=found[1], preempted=preempted)
    return found


def _cut_image(request: Request, end: int) -> int | None:
    """Where the image starts that position ``end`` is within."""
    for feature in request.mm_features:
        start = feature.mm_position.offset
        if start < end < start + feature.mm_position.length:
            return start
    return None
