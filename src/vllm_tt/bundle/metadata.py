"""``vllm_metadata.json`` as a frozen record, parsed once; the reader and the validator share it.

Registration needs ``arch`` and ``main_class`` alone, and most bundles have no other key: a fault in
any other field loses that field, never the bundle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle import fields, jsontext
from vllm_tt.bundle.findings import Finding, Reader, finding, shown
from vllm_tt.bundle.names import architectures, main_class

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FILE_NAME",
    "SCHEMA_VERSION",
    "Launch",
    "Limits",
    "Metadata",
    "Parsed",
    "Requires",
    "Serving",
    "parse",
]

FILE_NAME = "vllm_metadata.json"
SCHEMA_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Requires:
    """Version ranges (PEP 440) of what the adapter was written for, and packages (PEP 508) it imports."""

    python: str | None = None
    vllm: str | None = None
    ttnn: str | None = None
    vllm_tt: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Sizes that the adapter was tried with; ``per_device`` holds those of single meshes by name."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    trace_region_size: int | None = None
    """Bytes."""
    max_tokens_all_users: int | None = None
    per_device: Mapping[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """Server options that suit the model."""

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    additional_config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One entry of the launch map that older distribution tools start servers from."""

    command: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """A bundle's metadata. Absent fields are None or empty."""

    arch: str
    """As written, with or without the ``TT`` prefix."""
    architectures: tuple[str, ...]
    """Every architecture that the class serves, as written: ``arch`` first, each once."""
    main_class: str
    """``module:Class``."""
    schema_version: int = SCHEMA_VERSION
    name: str | None = None
    version: str | None = None
    description: str | None = None
    license: str | None = None
    homepage: str | None = None
    tags: tuple[str, ...] = ()
    hf_weights: str | None = None
    hf_revision: str | None = None
    requires: Requires = field(default_factory=Requires)
    mesh_devices: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    serving: Serving = field(default_factory=Serving)
    launch: Mapping[str, Launch] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.main_class.partition(":")[0]

    @property
    def class_name(self) -> str:
        return self.main_class.partition(":")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """The result of parsing: ``metadata`` is None when registration must skip the bundle."""

    metadata: Metadata | None
    findings: tuple[Finding, ...]

    @property
    def fault(self) -> Finding | None:
        """The first finding that makes the reader skip the bundle."""
        return next((found for found in self.findings if found.reader is Reader.SKIP), None)


def parse(data: bytes) -> Parsed:
    """Parse the bytes of a metadata file. Never raises; all faults are in the findings, in reading order."""
    loaded = jsontext.load(data)
    if loaded.root is None:
        return Parsed(metadata=None, findings=loaded.findings)
    metadata, findings = _record(loaded.root)
    return Parsed(metadata=metadata, findings=jsontext.located(loaded.findings + tuple(findings), loaded.text))


def _record(root: dict[str, Any]) -> tuple[Metadata | None, list[Finding]]:
    findings: list[Finding] = []
    names = architectures(root, findings)
    target = main_class(root, findings)
    values = fields.read(_FIELDS, root, findings)
    version = values.pop("schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        message = f"written for schema {shown(version)}; this plugin knows {SCHEMA_VERSION}"
        findings.append(finding("TB215", message, key=("schema_version",)))
    if not names or not target:
        return None, findings
    return Metadata(arch=names[0], architectures=names, main_class=target, schema_version=version, **values), findings


_SIZES: dict[str, fields.Read] = {
    "max_model_len": fields.integer(1),
    "max_num_seqs": fields.integer(1),
    "block_size": fields.integer(1),
    "trace_region_size": fields.integer(0),
    "max_tokens_all_users": fields.integer(1),
}
_REQUIRES: dict[str, fields.Read] = {
    "python": fields.text(256),
    "vllm": fields.text(256),
    "ttnn": fields.text(256),
    "vllm-tt": fields.text(256),
    "packages": fields.texts(128, each=256),
}
_SERVING: dict[str, fields.Read] = {
    "tool_parser": fields.optional(fields.text(empty=True)),
    "reasoning_parser": fields.optional(fields.text(empty=True)),
    "additional_config": fields.mapping(),
}
_LAUNCH: dict[str, fields.Read] = {"command": fields.words(1024), "env": fields.environment()}
_FIELDS: dict[str, fields.Read] = {
    "$schema": fields.ignored,
    "arch": fields.ignored,
    "architectures": fields.ignored,
    "main_class": fields.ignored,
    "schema_version": fields.rule("TB215", fields.integer(1)),
    "name": fields.identifier(_NAME, "1 to 96 letters, digits, '.', '_' or '-', with a letter or digit at both ends"),
    "version": fields.text(64),
    "description": fields.text(2000, empty=True),
    "license": fields.text(128),
    "homepage": fields.text(1024, empty=True),
    "tags": fields.texts(64, each=64),
    "hf_weights": fields.rule("TB211", fields.optional(fields.text(512))),
    "hf_revision": fields.optional(fields.text(256)),
    "requires": fields.record(Requires, _REQUIRES),
    "mesh_devices": fields.texts(each=32),
    "limits": fields.record(Limits, {**_SIZES, "per_device": fields.each(fields.record(Limits, _SIZES))}),
    "serving": fields.record(Serving, _SERVING),
    "launch": fields.rule("TB212", fields.each(fields.record(Launch, _LAUNCH, needed=("command",)), 256)),
}
