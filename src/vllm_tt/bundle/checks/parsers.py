"""Whether vLLM has the parsers of model output that a bundle declares."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, finding, shown
from vllm_tt.bundle.vllm_names import vllm_parsers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["parser_findings"]


def parser_findings(metadata: Metadata) -> Iterator[Finding]:
    """Declared parsers that the installed vLLM does not register; none where it is not installed."""
    asked = (("tool", metadata.serving.tool_parser), ("reasoning", metadata.serving.reasoning_parser))
    for kind, name in asked:
        known = vllm_parsers(kind)
        if name and known and name not in known:
            close = get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
            key = ("serving", f"{kind}_parser")
            yield finding("TB222", f"vLLM has no {kind} parser {shown(name)}", hint=hint, key=key)
