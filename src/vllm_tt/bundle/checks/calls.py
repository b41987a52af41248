"""Whether an adapter class can be called as the worker calls it: the contract's table against the class's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.contract import (
    CALLS,
    CONTRACT_V1,
    DEVICE_PENALTIES,
    DEVICE_SAMPLING,
    LEGACY_SAMPLING,
    ROW_LOGITS,
    SEVERAL_GROUPS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vllm_tt.bundle.facts import AdapterFacts, Method, Place, Signature
    from vllm_tt.contract import Call

    Applies = Callable[[AdapterFacts], bool]

__all__ = ["call_findings"]

_UNIFORM, _PER_LAYER = "allocate_kv_cache", "allocate_kv_cache_per_layer"
_READ_BACK, _TO_HOST = "read_decode_output", "process_decode_output_host"


def call_findings(facts: AdapterFacts) -> Iterator[Finding]:
    """What the worker's calls would fail on, in the order of a server's life."""
    yield from _missing(facts)
    for call in CALLS:
        method = facts.methods.get(call.method)
        if method is None or method.kind == "value":
            continue
        fault = _wrong_kind(call, method)
        if fault is not None:
            yield _at(fault, method.place)
        elif method.signature is not None:
            for found in _arguments(call, method.signature, facts):
                yield _at(found, method.place)
    if _UNIFORM in facts.methods and _PER_LAYER not in facts.methods and "get_kv_cache_spec" in facts.methods:
        message = f"get_kv_cache_spec() may give several KV cache groups, which {_UNIFORM}() cannot hold"
        yield _at(finding("TB407", message, hint=f"define {_PER_LAYER}(specs)"), facts.methods[_UNIFORM].place)


def _missing(facts: AdapterFacts) -> Iterator[Finding]:
    missing = [call.method for call in CALLS if _is_missing(call, facts)]
    if missing and not facts.complete:
        names, bases = ", ".join(map(repr, missing)), ", ".join(facts.bases_elsewhere)
        came_from = "elsewhere" if bases == "?" else f"its bases outside the bundle ({bases})"
        message = (
            f"{facts.name} does not define {names} itself; {'they' if missing[1:] else 'it'} must come from {came_from}"
        )
        yield _at(finding("TB401", message).graded(Severity.NOTE), facts.place)
        return
    for name in missing:
        if name == _READ_BACK:
            message = f"declares supports_async_decode but has no {_READ_BACK}()"
            yield _at(finding("TB504", message), facts.capabilities_place)
            continue
        also = f" (or '{_PER_LAYER}')" if name == _UNIFORM else ""
        found = finding("TB401", f"{facts.name} lacks '{name}'{also}")
        if name == _TO_HOST:
            found = found.graded(Severity.WARNING)
        yield _at(found, facts.place)


def _is_missing(call: Call, facts: AdapterFacts) -> bool:
    if not call.needed or call.method in facts.methods:
        return False
    if call.method == _READ_BACK:
        return facts.declares("supports_async_decode")
    if call.method == _TO_HOST:
        return _READ_BACK in facts.methods
    return not (call.method == _UNIFORM and _PER_LAYER in facts.methods)


def _wrong_kind(call: Call, method: Method) -> Finding | None:
    name = f"{call.method}()"
    if method.kind == "property":
        return finding("TB405", f"'{call.method}' is a property; it must be a method")
    if method.is_async:
        return finding("TB405", f"{name} is a coroutine function ('async def'); it is called without await")
    if method.is_generator:
        return finding("TB405", f"{name} is a generator function (it has a 'yield'); it must return its result")
    if call.on_class and method.kind == "instance":
        return finding(
            "TB404", f"{name} must be a class method or static method: it is called before there is an instance"
        )
    return None


def _arguments(call: Call, signature: Signature, facts: AdapterFacts) -> Iterator[Finding]:
    yield from _by_position(call, signature)
    given = {one.name for one in signature.parameters[: call.positional] if one.by_position}
    for keyword in call.always[call.positional :]:
        if keyword in given:
            message = f"{call.method}() gets '{keyword}' twice: its place is filled by position, and it is sent by name"
            yield finding("TB406", message)
        elif any(one.name == keyword and not one.by_keyword for one in signature.parameters):
            yield finding("TB406", f"{call.method}() takes '{keyword}' by position only; it is sent by name")
        elif not signature.accepts(keyword):
            message = f"{call.method}() does not accept '{keyword}'"
            yield finding("TB402", message, hint="accept it by name, or take **kwargs")
    for keyword, condition in call.sometimes.items():
        applies = _APPLIES.get(condition)
        if applies is not None and applies(facts) and not signature.accepts(keyword):
            yield _sometimes(call, keyword, condition)
    for one in signature.parameters:
        sent = one.name in given or one.name in call.always[call.positional :]
        misplaced = one.name in call.always[: call.positional] and not one.by_position
        if one.required and not sent and not misplaced:
            yield _never_sent(call, one.name)


def _by_position(call: Call, signature: Signature) -> Iterator[Finding]:
    if signature.takes_args:
        return
    places = [one for one in signature.parameters if one.by_position]
    for index in range(len(places), call.positional):
        name = call.always[index]
        only = any(one.name == name for one in signature.parameters)
        what = "takes it by keyword only" if only else f"takes only {len(places)} by position"
        yield finding("TB406", f"{call.method}() is passed '{name}' by position, and {what}")


def _sometimes(call: Call, keyword: str, condition: str) -> Finding:
    if condition == DEVICE_SAMPLING:
        return finding("TB506", f"declares supports_sample_on_device but {call.method}() does not accept '{keyword}'")
    found = finding("TB402", f"{call.method}() does not accept '{keyword}', which is sent with {condition}")
    return found if condition == CONTRACT_V1 else found.graded(Severity.WARNING)


def _never_sent(call: Call, name: str) -> Finding:
    condition = call.sometimes.get(name)
    if condition is not None:
        message = f"{call.method}() requires '{name}', which is sent only with {condition}"
    else:
        message = f"{call.method}() requires {shown(name)}, which is never passed"
    return finding("TB403", message, hint="give it a default")


def _at(found: Finding, place: Place) -> Finding:
    return found.at(place.file, place.line, place.column)


def _samples(facts: AdapterFacts) -> bool:
    return facts.declares("supports_sample_on_device")


def _penalizes(facts: AdapterFacts) -> bool:
    known = facts.capabilities if isinstance(facts.capabilities, dict) else {}
    return _samples(facts) and known.get("supports_device_penalties", True) is not False


_APPLIES: Mapping[str, Applies] = {
    DEVICE_SAMPLING: _samples,
    LEGACY_SAMPLING: lambda facts: _samples(facts) and facts.decode_contract is None,
    CONTRACT_V1: lambda facts: facts.decode_contract == 1,
    DEVICE_PENALTIES: _penalizes,
    ROW_LOGITS: lambda facts: _samples(facts) and facts.declares("supports_row_logits"),
    SEVERAL_GROUPS: lambda facts: facts.several_groups,
}
"""Whether a condition of the table can hold for a class; one that is not here depends on the model served."""
