"""What became of every bundle and of every built-in model, as rows for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.models.builtin_table import BUILTINS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Literal

    from vllm_tt.models.builtin import Builtin, Capacity, Variant
    from vllm_tt.models.resolve import Registry

__all__ = ["BuiltinRow", "BundleRow", "builtin_rows", "bundle_rows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleRow:
    """One architecture of one bundle, or one bundle that has none to offer."""

    status: Literal["ok", "shadowed", "skipped"]
    folder: Path
    bundle: str
    arch: str | None = None
    """The registered name."""
    main_class: str | None = None
    code: str | None = None
    reason: str | None = None
    """Why it is not registered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltinRow:
    """One class of tt-metal, what selects it and what it takes."""

    arch: str
    models: str
    """Whose checkpoints these are, in words."""
    selector: str
    """``VARIABLE=value``, or empty."""
    default: bool
    main_class: str
    served: Literal["yes", "not yet"]
    missing: tuple[str, ...]
    """What it takes that cannot be served yet."""
    lanes: bool
    """Data parallelism folds into lanes of one engine."""
    meshes: tuple[str, ...]
    """The machines that it was made for; empty: any."""
    capacities: tuple[Capacity, ...]
    variables: tuple[str, ...]
    """What must be set in the environment."""
    options: Mapping[str, str]
    """Options of `vllm serve` that deployments use, by machine."""
    notes: tuple[str, ...]
    test_model: bool


def bundle_rows(found: Registry) -> list[BundleRow]:
    """A row for each architecture of each bundle, in the order of the folders."""
    rows = [
        BundleRow(status="skipped", folder=one.folder, bundle=one.name, code=one.finding.code, reason=one.reason)
        for one in found.skipped
    ]
    lost = {(one.bundle.folder, one.arch): one.winner for one in found.shadowed}
    for bundle in found.discovery.bundles:
        served = [entry.arch for entry in found.of_bundles if entry.folder == bundle.folder]
        shadowed = [arch for folder, arch in lost if folder == bundle.folder]
        for arch in [*served, *shadowed]:
            winner = lost.get((bundle.folder, arch))
            rows.append(
                BundleRow(
                    status="shadowed" if winner else "ok",
                    folder=bundle.folder,
                    bundle=bundle.name,
                    arch=arch,
                    main_class=bundle.metadata.main_class,
                    code="TB601" if winner else None,
                    reason=f"already registered by {winner.origin}" if winner else None,
                )
            )
    return sorted(rows, key=lambda row: (found.discovery.folders.index(row.folder.parent), row.folder))


def builtin_rows(arch: str = "", mesh: str | None = None) -> list[BuiltinRow]:
    """The table of built-in models, one row for each class.

    ``arch``: those whose name has it as a part, in any case; ``mesh``: those that were made for it, or for any.
    """
    return [
        _builtin_row(builtin, value, variant)
        for builtin in BUILTINS
        for value, variant in builtin.variants.items()
        if arch.lower() in builtin.arch.lower() and (mesh is None or not variant.meshes or mesh in variant.meshes)
    ]


def _builtin_row(builtin: Builtin, value: str, variant: Variant) -> BuiltinRow:
    return BuiltinRow(
        arch=builtin.arch,
        models=builtin.models,
        selector=f"{builtin.selector.name}={value}" if builtin.selector else "",
        default=value == builtin.default,
        main_class=variant.main_class,
        served="not yet" if variant.missing else "yes",
        missing=variant.missing,
        lanes=variant.lanes,
        meshes=variant.meshes,
        capacities=variant.capacities,
        variables=tuple(variable.name for variable in variant.variables),
        options=variant.options,
        notes=variant.notes,
        test_model=builtin.test_model,
    )
