"""``tt-bundle list``: every bundle with what became of it, or the table of built-in models."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from vllm_tt import env
from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.builtin_lines import builtin_lines
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.report import answer, columns, finding_record, json_option
from vllm_tt.errors import ConfigError
from vllm_tt.mesh import MESH_GRIDS
from vllm_tt.models.inventory import BundleRow, builtin_rows, bundle_rows
from vllm_tt.models.resolve import Registry, resolve, summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_tt.bundle.findings import Finding

__all__ = ["NothingToList", "command"]

_UNSEEN = ("TB001", "TB002")
"""Findings that say a folder could not be looked into."""


class NothingToList(ConfigError):
    """EXTRA_MODELS_DIR is not set: name a folder of bundle folders with --dir, or use --builtin."""


@click.command("list")
@click.option("--dir", "folder", metavar="FOLDER", help="Folder of bundle folders, instead of EXTRA_MODELS_DIR.")
@click.option("--builtin", is_flag=True, help="Show the models built into tt-metal instead.")
@click.option("--arch", metavar="TEXT", help="With --builtin: those whose name has TEXT as a part.")
@click.option(
    "--mesh", type=click.Choice(list(MESH_GRIDS)), help="With --builtin: those made for this mesh, or for any."
)
@click.option("--broken", is_flag=True, help="Show only what is not registered.")
@json_option
@click.pass_context
def command(
    context: click.Context, folder: str | None, builtin: bool, arch: str | None, mesh: str | None, broken: bool
) -> None:
    """Show every bundle: ok, skipped with the reason, or shadowed by another one.

    Exits with 1 when a bundle is faulty, with 4 when a folder cannot be read.
    """
    if builtin:
        built_in = builtin_rows(arch or "", mesh)
        answer(builtin_lines(built_in), {"builtin": [asdict(row) for row in built_in]})
        return
    if arch is not None or mesh is not None:
        message = "--arch and --mesh choose among built-in models: add --builtin."
        raise click.UsageError(message)
    folders = folder or env.EXTRA_MODELS_DIR.get()
    if folders is None:
        raise NothingToList
    found = resolve({**os.environ, env.EXTRA_MODELS_DIR.name: folders})
    shown = [row for row in bundle_rows(found) if not (broken and row.status == "ok")]
    findings = list(_findings(found))
    faults = {one.code for _, one in findings if one.severity is Severity.ERROR}
    ok = not faults and not found.faults
    answer(_lines(found, shown), _content(found, shown, findings), ok=ok)
    unseen = bool(faults.intersection(_UNSEEN))
    context.exit(Exit.LOCAL_IO if unseen else Exit.OK if ok else Exit.FINDINGS)


def _lines(found: Registry, rows: list[BundleRow]) -> Iterator[str]:
    for notice in found.discovery.notices:
        if notice.finding.severity is Severity.ERROR:
            yield f"{notice.finding.severity.value}: {notice.finding.message}"
    for fault in found.faults.values():
        yield f"error: {fault}"
    for folder in found.discovery.folders:
        here = [row for row in rows if row.folder.parent == folder]
        yield f"{path_text(folder)}:"
        if not here:
            yield "  nothing to show"
            continue
        cells = [[row.status, row.bundle, row.arch or "-", row.reason or row.main_class or ""] for row in here]
        yield from columns(cells, indent="  ")
    yield summary(found)


def _findings(found: Registry) -> Iterator[tuple[Path, Finding]]:
    for notice in found.discovery.notices:
        yield notice.path, notice.finding
    for skipped in found.skipped:
        yield skipped.folder, skipped.finding
    for bundle in found.discovery.bundles:
        for one in bundle.findings:
            yield bundle.folder, one


def _content(found: Registry, rows: list[BundleRow], findings: list[tuple[Path, Finding]]) -> dict[str, Any]:
    counts = {
        status: sum(row.status == status for row in bundle_rows(found)) for status in ("ok", "shadowed", "skipped")
    }
    return {
        "folders": [str(folder) for folder in found.discovery.folders],
        "bundles": [{**asdict(row), "folder": str(row.folder)} for row in rows],
        "findings": [finding_record(one, str(path)) for path, one in findings],
        "faults": [str(fault) for fault in found.faults.values()],
        "summary": counts,
    }
