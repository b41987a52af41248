"""Whether two sets of logits are the same, up to the arithmetic of the adapter's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["TOLERANCES", "difference", "unlike"]

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.03}
"""By dtype: how much logits may differ, as a part of their spread over the vocabulary."""


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How far ``found`` [V] is from ``expected`` [V]: 0 for equal, about 1.4 for unrelated ones."""
    spread = expected - expected.mean()
    size = float(spread.norm())
    distance = float((found - found.mean() - spread).norm())
    return distance / size if size else distance


def unlike(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str | None:
    """What is different, or None."""
    if not bool(found.isfinite().all()):
        return "the logits are not finite"
    if not bool(expected.isfinite().all()):
        return "the logits to compare with are not finite"
    apart = difference(found, expected)
    if apart <= tolerance:
        return None
    tokens = int(found.argmax()), int(expected.argmax())
    same = f"both choose token {tokens[0]}" if tokens[0] == tokens[1] else f"token {tokens[0]}, not {tokens[1]}"
    return f"the logits differ by {apart:.2g} of their spread (limit {tolerance:g}); {same}"
