"""The two required fields of the metadata: which architectures a bundle serves, and with which class."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.findings import Finding, Reader, finding, shown
from vllm_tt.bundle.jsontext import kind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PREFIX", "architectures", "main_class", "plain_name", "registered_name"]

PREFIX = "TT"

_ARCH = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_ARCHITECTURES = 32
_MAX_MAIN_CLASS = 512
_NEAR_MISSES = {
    "arch": ("architecture", "architectures", "Arch", "arch_name", "model_arch"),
    "main_class": ("mainClass", "main-class", "class", "main", "entrypoint"),
}


def registered_name(arch: str) -> str:
    """The name that an architecture is registered under; prefixed once."""
    return arch if arch.startswith(PREFIX) else PREFIX + arch


def plain_name(arch: str) -> str:
    """The architecture without the prefix."""
    return arch.removeprefix(PREFIX)


def architectures(root: Mapping[str, Any], findings: list[Finding]) -> tuple[str, ...]:
    """All architectures, ``arch`` first; empty when ``arch`` is no good."""
    first = _required(root, "arch", findings)
    if first is None:
        return ()
    if not _ARCH.fullmatch(first):
        findings.append(finding("TB203", f"'arch' must be a Python identifier: {shown(first)}", key=("arch",)))
        return ()
    if first.startswith(PREFIX):
        message = f"{shown(first)} is already prefixed; prefer {shown(plain_name(first))}"
        hint = "so that the plain name can be registered too"
        findings.append(finding("TB204", message, hint=hint, key=("arch",)))
    return (first, *_further(root, first, findings))


def main_class(root: Mapping[str, Any], findings: list[Finding]) -> str | None:
    """The class as ``module:Class``, or None when it is no good."""
    value = _required(root, "main_class", findings)
    if value is None:
        return None
    if problem := _main_class_problem(value):
        code, message, hint = problem
        findings.append(finding(code, message, hint=hint, key=("main_class",)))
        return None
    return value


def _required(root: Mapping[str, Any], key: str, findings: list[Finding]) -> str | None:
    value = root.get(key)
    if key not in root:
        near = next((name for name in _NEAR_MISSES[key] if name in root), "")
        hint = f"found {near!r}; the key is {key!r}" if near else ""
        findings.append(finding("TB201", f"missing required key {key!r}", hint=hint))
    elif value is None or value == "":
        findings.append(finding("TB201", f"{key!r} is empty", key=(key,)))
    elif not isinstance(value, str):
        findings.append(finding("TB202", f"{key!r} must be a string, got {kind(value)}", key=(key,)))
    else:
        return value
    return None


def _further(root: Mapping[str, Any], first: str, findings: list[Finding]) -> list[str]:
    if "architectures" not in root:
        return []
    value, key = root["architectures"], ("architectures",)
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_ARCHITECTURES:
        message = f"'architectures' must be a list of 1 to {_MAX_ARCHITECTURES} names, got {shown(value)}"
        findings.append(finding("TB202", message, reader=Reader.WARN, key=key))
        return []
    names: list[str] = []
    seen = {registered_name(first)}
    for item in value:
        if not isinstance(item, str) or not _ARCH.fullmatch(item):
            message = f"'architectures' holds {shown(item)}, which is not a Python identifier; ignored"
            findings.append(finding("TB203", message, reader=Reader.WARN, key=key))
        elif registered_name(item) not in seen:
            seen.add(registered_name(item))
            names.append(item)
        elif item != first:
            findings.append(finding("TB220", f"'architectures' names {shown(plain_name(item))} twice", key=key))
    if first not in value:
        findings.append(finding("TB220", f"'architectures' lacks 'arch' ({shown(first)})", key=key))
    return names


def _main_class_problem(value: str) -> tuple[str, str, str] | None:
    """Code, message and hint of what is wrong with a ``module:Class`` text."""
    got = f"'main_class' must look like 'module:Class', got {shown(value)}"
    module, colon, name = value.partition(":")
    if not colon:
        before, dot, last = value.rpartition(".")
        return "TB206", got, f"did you mean '{before}:{last}'?" if dot and _NAME.fullmatch(last) else ""
    if ":" in name or not module or not name or value != value.strip() or len(value) > _MAX_MAIN_CLASS:
        return "TB207", got, ""
    if module.endswith(".py") or "/" in module or "\\" in module:
        better = re.sub(r"[/\\]+", ".", module.removesuffix(".py")).strip(".")
        return "TB208", f"{shown(module)} is a path, not a module; use {shown(better)}", ""
    parts = module.split(".")
    bad = next((part for part in parts if not _NAME.fullmatch(part) or keyword.iskeyword(part)), None)
    if bad is not None:
        return "TB208", f"{shown(module)} cannot be a module name: {shown(bad)} is not an identifier", ""
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name, re.ASCII):
        return "TB209", f"nested classes cannot be registered: {shown(name)}", ""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        return "TB207", got, ""
    return None
