"""All explanations, by code."""

from __future__ import annotations

from difflib import get_close_matches

from vllm_tt.bundle.explain.adapter import ADAPTER
from vllm_tt.bundle.explain.explanation import Explanation
from vllm_tt.bundle.explain.metadata import METADATA
from vllm_tt.bundle.explain.modules import MODULES
from vllm_tt.bundle.explain.shipping import SHIPPING

__all__ = ["EXPLANATIONS", "Explanation", "nearest_codes"]

EXPLANATIONS: dict[str, Explanation] = dict(sorted({**METADATA, **MODULES, **ADAPTER, **SHIPPING}.items()))
"""One for each rule; a test holds the two tables together."""


def nearest_codes(code: str) -> list[str]:
    """Known codes that look like ``code``."""
    alike = [known for known in EXPLANATIONS if known.startswith(code[:3])]
    return get_close_matches(code, alike or EXPLANATIONS, n=3)
