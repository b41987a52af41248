"""What is wrong with bundles only because of one another, or of what is built in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, finding
from vllm_tt.bundle.names import plain_name, registered_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from vllm_tt.bundle.code import ModuleText
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["between_findings", "builtin_findings", "novel_findings"]


def between_findings(bundles: Sequence[tuple[Path, Metadata, Sequence[ModuleText]]]) -> Iterator[tuple[Path, Finding]]:
    """Findings of each bundle against those before it, in the order in which the reader takes them."""
    archs: dict[str, Path] = {}
    names: dict[str, Path] = {}
    mains: dict[str, Path] = {}
    helpers: dict[str, Path] = {}
    for folder, metadata, texts in bundles:
        for arch in metadata.architectures:
            first = archs.setdefault(registered_name(arch), folder)
            if first != folder:
                message = (
                    f"{registered_name(arch)} is already provided by bundle {first.name!r}, which is served instead"
                )
                yield folder, finding("TB601", message, key=_arch_key(metadata, arch))
        if metadata.name is not None:
            first = names.setdefault(metadata.name, folder)
            if first != folder:
                message = f"bundle {first.name!r} has the name {metadata.name!r} too"
                yield folder, finding("TB603", message, key=("name",))
        tops = {text.name.partition(".")[0]: text for text in texts}
        main = metadata.module.partition(".")[0]
        for top in tops:
            known = mains if top == main else helpers
            first = known.setdefault(top, folder)
            if first != folder:
                yield folder, _same_module(top, first, is_main=top == main)


def _arch_key(metadata: Metadata, arch: str) -> tuple[str, ...]:
    return ("arch",) if arch == metadata.arch else ("architectures",)


def _same_module(top: str, first: Path, *, is_main: bool) -> Finding:
    if is_main:
        message = (
            f"module {top!r} is also provided by bundle {first.name!r}; each gets its own here, not in other plugins"
        )
        return finding("TB306", message, key=("main_class",))
    message = f"helper module {top!r} is also in bundle {first.name!r}; a process that loads both has the first one's"
    return finding("TB307", message).at("")


def builtin_findings(metadata: Metadata, builtins: Mapping[str, str]) -> Iterator[Finding]:
    """The built-in models that the bundle is served in place of; ``builtins``: classes by registered name."""
    for arch in metadata.architectures:
        if replaced := builtins.get(registered_name(arch)):
            message = f"overrides the built-in {registered_name(arch)} -> {replaced}"
            yield finding("TB602", message, key=_arch_key(metadata, arch))


def novel_findings(metadata: Metadata, known: frozenset[str], missing: Sequence[str]) -> Iterator[Finding]:
    """Architectures that vLLM does not know, whose class lacks what vLLM's own inspection looks for."""
    for arch in metadata.architectures if missing else ():
        if plain_name(arch) not in known:
            lacks = ", ".join(missing)
            message = f"vLLM does not know {plain_name(arch)!r}: it is served here, but other plugins need {lacks} too"
            yield finding("TB409", message, key=_arch_key(metadata, arch))
