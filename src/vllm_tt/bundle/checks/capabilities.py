"""Whether what an adapter class declares is well formed, and true as far as its text tells."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.facts import UNKNOWN
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.contract import Capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_tt.bundle.facts import AdapterFacts, Body, Method
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["KNOWN", "capability_findings", "declaration_findings"]

_WORDS: dict[type, str] = {bool: "true or false", int: "an integer", tuple: "a tuple", dict: "a dict", str: "a string"}


def _known() -> Mapping[str, type]:
    whole = (
        "resumed_prefill_token_alignment",
        "output_tokens_per_step",
        "required_block_size",
        "tt_adaptive_block_max_prompt_tokens",
        "tt_block_kv_extent_tokens",
    )
    flags = (
        "accepts_trace_mode",
        "tt_adaptive_block_output",
        "tt_async_decode_allows_overlap",
        "state_slots_are_stateless",
    )
    more = (
        "supports_device_grammar",
        "supports_spec_decode",
        "supports_async_spec_decode",
        "supports_async_decode_overlap",
    )
    rare = ("supports_device_sampling_penalties", "supports_intermediate_prefill_output_mask")
    others: dict[str, type] = dict.fromkeys((*flags, *more, *rare, "supports_prefill_sampling_origins"), bool)
    named = {
        "spec_requirements": tuple,
        "spec_hidden_handoff": tuple,
        "fabric_config": dict,
        "sample_on_device_policy": str,
    }
    return {**Capabilities.types(), **others, **dict.fromkeys(whole, int), **named}


KNOWN = _known()
"""The capability keys that the worker or tt-metal's adapters know, with their types."""


def capability_findings(facts: AdapterFacts) -> Iterator[Finding]:
    """What is wrong with ``model_capabilities``."""
    method = facts.methods.get("model_capabilities")
    is_value = method is None or method.kind == "value"
    for found in _form(facts):
        place = facts.capabilities_place if is_value or method is None else method.place
        yield found.at(place.file, place.line, place.column)


def _form(facts: AdapterFacts) -> Iterator[Finding]:
    method = facts.methods.get("model_capabilities")
    if method is not None and method.kind != "value":
        yield finding("TB501", f"model_capabilities is a {_kind(method)}; it must be a dict that the class holds")
    elif facts.capabilities_on_instance:
        yield finding("TB501", "model_capabilities is set on the instance; the platform reads it from the class")
    elif isinstance(facts.capabilities, dict):
        for key, value in facts.capabilities.items():
            yield from _one(key, value)
    elif facts.capabilities not in (None, UNKNOWN):
        yield finding("TB501", f"model_capabilities must be a dict, got {shown(facts.capabilities)}")


def _kind(method: Method) -> str:
    return "property" if method.kind == "property" else "method"


def _one(key: Any, value: Any) -> Iterator[Finding]:
    expected = KNOWN.get(key) if isinstance(key, str) else None
    if not isinstance(key, str):
        yield finding("TB501", f"model_capabilities has the key {shown(key)}; keys are strings")
    elif expected is None:
        close = get_close_matches(key, KNOWN, n=1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        yield finding("TB503", f"unknown capability {shown(key)}", hint=hint)
        if key.startswith("supports_") and type(value) is not bool:
            yield _wrong_type(key, bool, value)
    elif not _fits(value, expected):
        yield _wrong_type(key, expected, value)


def _fits(value: Any, expected: type) -> bool:
    if value is None:
        return expected is not bool
    return type(value) is expected or (expected is tuple and isinstance(value, list))


def _wrong_type(key: str, expected: type, value: Any) -> Finding:
    return finding("TB502", f"{shown(key).strip(chr(39))} must be {_WORDS[expected]}, got {shown(value)}")


def declaration_findings(facts: AdapterFacts, metadata: Metadata) -> Iterator[Finding]:
    """Declarations that the methods or the metadata contradict."""
    yield from _start_pos(facts)
    yield from _images(facts)
    yield from _decode_contract(facts, metadata)
    yield from _max_tokens(facts)
    if facts.abstract:
        names = ", ".join(map(repr, facts.abstract))
        yield _at_class(finding("TB412", f"{facts.name} is abstract: {names} must be defined"), facts)


def _start_pos(facts: AdapterFacts) -> Iterator[Finding]:
    declared = [name for name in ("supports_prefix_caching", "supports_chunked_prefill") if facts.declares(name)]
    method = facts.methods.get("prefill_forward")
    if not declared or method is None or method.body is None or not _readable(method):
        return
    if "start_pos" in method.body.asserts:
        what = f"declares {declared[0]} but prefill_forward() asserts on 'start_pos'"
    elif not _reads(method.body, "start_pos"):
        what = f"declares {declared[0]} but prefill_forward() never reads 'start_pos'"
    else:
        return
    yield finding("TB505", what).at(method.place.file, method.place.line, method.place.column)


def _images(facts: AdapterFacts) -> Iterator[Finding]:
    method = facts.methods.get("prefill_forward")
    if method is None or method.body is None or not _readable(method):
        return
    named = method.signature is not None and any(one.name == "images" for one in method.signature.parameters)
    if (named or "images" in method.body.mentions) and not _accepts_pixels(method):
        message = "prefill_forward() reads 'images'; the worker sends 'pixel_values' and 'image_grid_thw'"
        yield finding("TB411", message).at(method.place.file, method.place.line, method.place.column)


def _accepts_pixels(method: Method) -> bool:
    named = method.signature is not None and any(one.name == "pixel_values" for one in method.signature.parameters)
    return named or (method.body is not None and "pixel_values" in method.body.mentions)


def _reads(body: Body, name: str) -> bool:
    return name in body.mentions or body.hands_on


def _readable(method: Method) -> bool:
    return method.signature is not None and method.kind == "instance"


def _decode_contract(facts: AdapterFacts, metadata: Metadata) -> Iterator[Finding]:
    value = facts.decode_contract
    if value in (None, UNKNOWN):
        return
    if type(value) is not int or value != 1:
        yield _at_class(finding("TB410", f"decode_input_update_contract must be 1, got {shown(value)}"), facts)
    elif metadata.requires.vllm_tt is None:
        message = "decode_input_update_contract = 1 needs a plugin that knows it"
        found = finding("TB410", message, hint='say so with "requires": {"vllm-tt": ">=..."}')
        yield _at_class(found.graded(Severity.WARNING), facts)


def _max_tokens(facts: AdapterFacts) -> Iterator[Finding]:
    method = facts.methods.get("get_max_tokens_all_users")
    if method is None:
        return
    called = facts.max_tokens != UNKNOWN
    body = method.body
    value = facts.max_tokens if called else body.constant if body else UNKNOWN
    if value == UNKNOWN or (type(value) is int and value > 0):
        return
    found = finding("TB408", f"get_max_tokens_all_users() must return a positive integer, got {shown(value, 200)}")
    place = method.place
    yield (found.graded(Severity.ERROR) if called else found).at(place.file, place.line, place.column)


def _at_class(found: Finding, facts: AdapterFacts) -> Finding:
    return found.at(facts.place.file, facts.place.line, facts.place.column)
