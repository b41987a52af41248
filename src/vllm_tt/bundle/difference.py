"""What differs between two bundles: metadata, what the adapters declare and take, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.facts import UNKNOWN
from vllm_tt.bundle.inspection import BundleView, Inspection, signatures
from vllm_tt.bundle.paths import amount
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS", "Change", "SeveralBundles", "difference"]

SECTIONS = ("metadata", "capabilities", "signatures", "files")


class SeveralBundles(ConfigError):
    """{path} holds {count} bundles: {names}. Name the folder of one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One difference: ``before`` is None for what is new, ``after`` for what is gone."""

    section: str
    name: str
    before: Any
    after: Any


def difference(first: Inspection, second: Inspection, *, names: tuple[str, str]) -> tuple[Change, ...]:
    """Every difference, by section and name; ``names`` are what the two are called. Raises SeveralBundles."""
    views = [_only(inspection, name) for inspection, name in zip((first, second), names, strict=True)]
    sides = {
        "metadata": [_metadata(view) for view in views],
        "capabilities": [_capabilities(view) for view in views],
        "signatures": [signatures(view.adapter) for view in views],
        "files": [_files(first), _files(second)],
    }
    return tuple(change for section in SECTIONS for change in _changes(section, *sides[section]))


def _only(inspection: Inspection, path: str) -> BundleView:
    if len(inspection.bundles) != 1:
        names = ", ".join(view.name or "" for view in inspection.bundles)
        raise SeveralBundles(path=path, count=len(inspection.bundles), names=names)
    return inspection.bundles[0]


def _changes(section: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield Change(section=section, name=name, before=before.get(name), after=after.get(name))


def _metadata(view: BundleView) -> dict[str, Any]:
    return dict(_flat("", asdict(view.metadata))) if view.metadata else {}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects under dotted names; what is absent is left out."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    elif value not in (None, ()):
        yield name, list(value) if isinstance(value, tuple) else value


def _capabilities(view: BundleView) -> dict[str, Any]:
    declared = view.adapter.capabilities if view.adapter else None
    if isinstance(declared, Mapping):
        return {str(key): value for key, value in declared.items()}
    return {"model_capabilities": UNKNOWN} if declared is not None else {}


def _files(inspection: Inspection) -> dict[str, str]:
    return {file.path: f"{amount(file.size)}, sha256 {file.sha256[:12]}" for file in inspection.contents.files}
