"""What a folder or archive holds: metadata, what the adapter declares, sizes and digests. Nothing is imported."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle import archive, lock
from vllm_tt.bundle.adapter_source import class_facts
from vllm_tt.bundle.files import Choice, select
from vllm_tt.bundle.hub.layouts import recognise
from vllm_tt.bundle.hub.manifest import MANIFEST_NAME, MAX_BYTES, Manifest
from vllm_tt.bundle.hub.origin import read_origin
from vllm_tt.bundle.metadata import FILE_NAME, parse
from vllm_tt.bundle.reading import path_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_tt.bundle.facts import AdapterFacts, Method, Signature
    from vllm_tt.bundle.files import Selection
    from vllm_tt.bundle.findings import Finding
    from vllm_tt.bundle.hub.layouts import Source
    from vllm_tt.bundle.hub.origin import Origin
    from vllm_tt.bundle.lock import Lock
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["BundleView", "Inspection", "inspect", "opened", "signature_text", "signatures"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleView:
    """One bundle."""

    name: str | None
    """Its folder in a package of several; None where the folder is the bundle."""
    metadata: Metadata | None
    """None when it cannot be registered, which a finding says."""
    findings: tuple[Finding, ...]
    adapter: AdapterFacts | None
    """None when the class is not in the bundle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A folder, or the contents of an archive."""

    layout: str
    """``root`` for a bundle's folder, else how the package lays out its bundles."""
    bundles: tuple[BundleView, ...]
    contents: Lock
    """The files, those that are never shipped left out, as a lock made now would list them."""
    lock_state: str
    """``matches``, ``differs``, ``malformed`` or ``none``."""
    manifest: Mapping[str, Any] | None = None
    """tt-model's description of the package, as it is."""
    origin: Origin | None = None
    """The Hub's commit that was installed here."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.contents.files)


@contextmanager
def opened(path: Path, max_size: int) -> Iterator[Path]:
    """A folder with the contents of ``path``: itself, or a temporary one that its archive is unpacked to.

    Raises compression.ArchiveRefused, OSError.
    """
    if path.is_dir():
        yield path
        return
    with path.open("rb") as source, tempfile.TemporaryDirectory(prefix="tt-bundle-") as room:
        yield Path(room) / archive.read(source, Path(room), max_size=max_size).top


def inspect(folder: Path) -> Inspection:
    """Look at everything in a folder. Raises hub.layouts.NoBundle when there is no bundle in it, OSError."""
    selection = select(folder, Choice(include_weights=True))
    paths = [file.path for file in selection.files]
    manifest = _manifest(selection) if MANIFEST_NAME in paths else None
    found = recognise(path_text(folder), paths, manifest)
    contents = lock.make(selection)
    return Inspection(
        layout=found.layout,
        bundles=tuple(_view(selection.folder, source) for source in found.bundles),
        contents=contents,
        lock_state=_lock_state(selection.folder, contents),
        manifest=manifest.root if manifest else None,
        origin=read_origin(selection.folder),
    )


def signatures(adapter: AdapterFacts | None) -> dict[str, str]:
    """The public methods of an adapter, each with what it can be called with."""
    methods = sorted(adapter.methods.items()) if adapter else []
    return {name: _method_text(one) for name, one in methods if not name.startswith("_") and one.kind != "value"}


def signature_text(signature: Signature | None) -> str:
    """A signature as it is written; ``=...`` stands for a default."""
    if signature is None:
        return "(?)"
    parts: list[str] = []
    positional = [one for one in signature.parameters if one.by_position]
    for one in positional:
        parts.append(one.name if one.required else f"{one.name}=...")
        last = [other for other in positional if not other.by_keyword][-1:]
        parts += ["/"] if last == [one] else []
    keyword_only = [one for one in signature.parameters if not one.by_position]
    parts += ["*args"] if signature.takes_args else ["*"] if keyword_only else []
    parts += [one.name if one.required else f"{one.name}=..." for one in keyword_only]
    parts += ["**kwargs"] if signature.takes_kwargs else []
    return f"({', '.join(parts)})"


def _method_text(method: Method) -> str:
    if method.kind == "property":
        return method.kind
    kind = "" if method.kind == "instance" else f"{method.kind}method "
    return f"{kind}{'async ' if method.is_async else ''}{signature_text(method.signature)}"


def _view(folder: Path, source: Source) -> BundleView:
    data = source.metadata
    if data is None:
        data = (folder / source.files[FILE_NAME]).read_bytes()
    parsed = parse(data)
    adapter = None
    if parsed.metadata is not None:
        code = _code_folder(folder, source, parsed.metadata.module)
        adapter = class_facts(parsed.metadata.module, parsed.metadata.class_name, code) if code else None
    return BundleView(name=source.name, metadata=parsed.metadata, findings=parsed.findings, adapter=adapter)


def _code_folder(folder: Path, source: Source, module: str) -> Path | None:
    """Where the modules of a bundle are, which in a package is not always beside its metadata."""
    name = module.replace(".", "/")
    for path in (f"{name}.py", f"{name}/__init__.py"):
        place = source.files.get(path)
        if place is not None:
            return folder / place.removesuffix(path)
    return None


def _manifest(selection: Selection) -> Manifest | None:
    with (selection.folder / MANIFEST_NAME).open("rb") as file:
        return Manifest.parse(file.read(MAX_BYTES))


def _lock_state(folder: Path, contents: Lock) -> str:
    known = lock.read(folder)
    if known is None:
        return "none"
    if not isinstance(known, lock.Lock):
        return "malformed"
    return "matches" if known.files == contents.files else "differs"
