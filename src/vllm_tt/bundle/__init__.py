"""Model bundles: folders with a ``vllm_metadata.json`` and an adapter class. Loads neither vllm, torch nor ttnn."""

from vllm_tt.bundle.discover import Bundle, Discovery, Notice, Skipped, discover
from vllm_tt.bundle.findings import Finding, Reader, Severity
from vllm_tt.bundle.metadata import Metadata, parse

__all__ = [
    "Bundle",
    "Discovery",
    "Finding",
    "Metadata",
    "Notice",
    "Reader",
    "Severity",
    "Skipped",
    "discover",
    "parse",
]
