"""``tt-bundle inspect``: what a folder or archive holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.compression import ArchiveRefused
from vllm_tt.bundle.facts import UNKNOWN
from vllm_tt.bundle.findings import Finding, Reader, shown
from vllm_tt.bundle.inspection import BundleView, Inspection, inspect, opened, signatures
from vllm_tt.bundle.names import registered_name
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, columns, json_option
from vllm_tt.cli.shipping import counted, max_size_option, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["command"]


@click.command("inspect")
@click.argument("path", metavar="PATH|ARCHIVE", type=click.Path(path_type=Path, exists=True))
@click.option("--files", is_flag=True, help="List every file with its size and digest.")
@max_size_option
@json_option
@click.pass_context
def command(context: click.Context, /, path: Path, files: bool, max_size: int) -> None:
    """Show a bundle's metadata, what its adapter declares and takes, and its contents.

    Reads tt-model's packages too, with tt_kernel_manifest.json as it is. Nothing is imported or run.
    """
    try:
        with opened(path, max_size) as folder:
            found = inspect(folder)
    except ArchiveRefused as error:
        remark([(path_text(path), error.finding)])
        answer((), {"path": str(path), "findings": records([error.finding], str(path))}, ok=False)
        context.exit(Exit.FINDINGS)
    faults = [one for view in found.bundles for one in view.findings if one.reader is Reader.SKIP]
    remark((path_text(path), one) for one in faults)
    answer(_lines(path, found, files=files), _content(path, found, faults), ok=not faults)
    if faults:
        context.exit(Exit.FINDINGS)


def _lines(path: Path, found: Inspection, *, files: bool) -> Iterator[str]:
    layout = "" if found.layout == "root" else f" ({found.layout})"
    yield f"{path_text(path)}{layout}"
    rows: list[list[str]] = []
    for view in found.bundles:
        rows += [["bundle", _value(view.name)]] if view.name is not None else []
        rows += [*_rows(view.metadata), *_adapter_rows(view)]
    total = f"{counted(len(found.contents.files), 'file')}, {amount(found.size)}, sha256 {found.contents.tree_sha256}"
    rows += [["contents", total], ["lock", _LOCKS[found.lock_state]]]
    if found.origin:
        rows.append(["from", f"{_value(found.origin.repo)} at commit {_value(found.origin.commit)}"])
    yield from columns(rows, indent="  ")
    if found.manifest is not None:
        yield "  tt_kernel_manifest.json"
        yield from columns([[key, _value(value)] for key, value in _leaves("", found.manifest)], indent="    ")
    if files:
        rows = [[file.sha256, amount(file.size).rjust(12), path_text(Path(file.path))] for file in found.contents.files]
        yield from columns(rows, indent="  ")


_LONGEST = 400
_LOCKS = {
    "none": "none",
    "matches": "matches the contents",
    "differs": "differs from the contents; 'tt-bundle verify' says where",
    "malformed": "malformed",
}


def _rows(metadata: Metadata | None) -> Iterator[list[str]]:
    if metadata is None:
        return
    names = ", ".join(f"{arch} (registered as {registered_name(arch)})" for arch in metadata.architectures)
    weights = " at ".join(_value(part) for part in (metadata.hf_weights, metadata.hf_revision) if part)
    requires = {key: value for key, value in asdict(metadata.requires).items() if value}
    limits = {key: value for key, value in asdict(metadata.limits).items() if value}
    rows = {
        "name": " ".join(_value(part) for part in (metadata.name, metadata.version) if part),
        "description": _value(metadata.description or ""),
        "license": _value(metadata.license or ""),
        "arch": names,
        "class": metadata.main_class,
        "weights": weights if metadata.hf_weights else "",
        "meshes": ", ".join(map(_value, metadata.mesh_devices)),
        "requires": _value(requires) if requires else "",
        "limits": _value(limits) if limits else "",
        "launch": ", ".join(map(_value, metadata.launch)),
    }
    yield from ([key, value] for key, value in rows.items() if value)


def _adapter_rows(view: BundleView) -> Iterator[list[str]]:
    if view.metadata is None:
        return
    if view.adapter is None:
        yield ["adapter", "the class is not in the bundle"]
        return
    yield ["adapter", f"{view.adapter.place.file}:{view.adapter.place.line}"]
    yield ["capabilities", _capabilities(view.adapter.capabilities)]
    if view.adapter.bases_elsewhere:
        yield ["bases", ", ".join(view.adapter.bases_elsewhere)]
    for name, text in signatures(view.adapter).items():
        kind, paren, rest = text.partition("(")
        yield ["method", f"{kind}{name}{paren}{rest}" if paren else f"{name}: {kind}"]


def _capabilities(declared: Any) -> str:
    if declared is None:
        return "none declared"
    return "not known from the source" if declared == UNKNOWN else _value(declared)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of the manifest under dotted names, long lists by their length."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list) and (len(value) > 8 or any(isinstance(item, (dict, list)) for item in value)):
        yield name, f"{len(value)} entries"
    elif value not in (None, [], {}):
        yield name, value


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text.isprintable() and len(text) <= _LONGEST else shown(text, _LONGEST)


def _content(path: Path, found: Inspection, faults: list[Finding]) -> dict[str, Any]:
    return {
        "path": str(path),
        "layout": found.layout,
        "bundles": [_view(view) for view in found.bundles],
        "files": [asdict(file) for file in found.contents.files],
        "tree_sha256": found.contents.tree_sha256,
        "lock": found.lock_state,
        "origin": asdict(found.origin) if found.origin else None,
        "manifest": found.manifest,
        "findings": records(faults, str(path)),
        "summary": {"files": len(found.contents.files), "size": found.size},
    }


def _view(view: BundleView) -> Mapping[str, Any]:
    adapter = view.adapter
    return {
        "name": view.name,
        "metadata": asdict(view.metadata) if view.metadata else None,
        "adapter": adapter
        and {
            "file": adapter.place.file,
            "line": adapter.place.line,
            "capabilities": adapter.capabilities,
            "decode_input_update_contract": adapter.decode_contract,
            "bases_elsewhere": list(adapter.bases_elsewhere),
            "methods": signatures(adapter),
        },
    }
