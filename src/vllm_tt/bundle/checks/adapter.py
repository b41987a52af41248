"""The adapter class against the contract: from its source, or from the class itself when it may be imported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_tt.bundle.adapter_source import class_facts
from vllm_tt.bundle.checks.between import novel_findings
from vllm_tt.bundle.checks.calls import call_findings
from vllm_tt.bundle.checks.capabilities import capability_findings, declaration_findings
from vllm_tt.bundle.checks.fields import power_of_two_findings
from vllm_tt.bundle.checks.modules import class_findings
from vllm_tt.bundle.source import find_module
from vllm_tt.bundle.vllm_names import vllm_architectures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_tt.bundle.code import ModuleText
    from vllm_tt.bundle.facts import AdapterFacts
    from vllm_tt.bundle.findings import Finding
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["adapter_findings"]

_TT_TRANSFORMERS = "models.tt_transformers"
_INSPECTED = ("embed_input_ids", "forward", "compute_logits")


def adapter_findings(
    folder: Path, metadata: Metadata, texts: Sequence[ModuleText], import_seconds: float | None
) -> Iterator[Finding]:
    """What is wrong with the class; with ``import_seconds`` it is imported, in a process of its own."""
    if any(text.fault and text.name == metadata.module for text in texts):
        return
    if not texts and find_module(metadata.module, None) is None:
        return
    home = folder if texts else None
    from_source = list(class_findings(home, metadata))
    facts = None if from_source else class_facts(metadata.module, metadata.class_name, home)
    if import_seconds is None or from_source:
        yield from from_source
    else:
        from vllm_tt.bundle.imported import imported_facts

        imported = imported_facts(folder, metadata.main_class, import_seconds)
        yield from imported.findings
        facts = _merged(imported.facts, facts) if imported.facts is not None else facts
    if facts is None:
        return
    yield from call_findings(facts)
    yield from capability_findings(facts)
    yield from declaration_findings(facts, metadata)
    if metadata.module.startswith(_TT_TRANSFORMERS) or any(
        base.startswith(_TT_TRANSFORMERS) for base in facts.bases_elsewhere
    ):
        yield from power_of_two_findings(metadata)
    known = vllm_architectures()
    if known and facts.complete:
        yield from novel_findings(metadata, known, _not_for_vllm(facts))


def _merged(imported: AdapterFacts, source: AdapterFacts | None) -> AdapterFacts:
    """What the class shows, with what only its text can."""
    if source is None:
        return imported
    methods = {
        name: replace(method, body=source.methods[name].body if name in source.methods else None)
        for name, method in imported.methods.items()
    }
    return replace(imported, methods=methods, place=source.place, capabilities_place=source.capabilities_place)


def _not_for_vllm(facts: AdapterFacts) -> list[str]:
    """What vLLM's own inspection of an unknown architecture would miss."""
    missing = [f"{name}()" for name in _INSPECTED if name not in facts.methods]
    init = facts.methods.get("__init__")
    accepts = init is None or init.signature is None or init.signature.accepts("vllm_config")
    return missing if init is not None and accepts else ["__init__(vllm_config=...)", *missing]
