"""``tt-bundle verify``: whether a bundle's files are those that its lock lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.bundle.unpack import Checked, Demands, verify_archive, verify_folder
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.progress import meter
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option
from vllm_tt.cli.shipping import Watched, binary_stdin, count, counted, max_size_option, records

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command"]


@click.command("verify")
@click.argument("path", metavar="DIR|ARCHIVE|-", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option("--require-lock", is_flag=True, help="A bundle without bundle.lock.json is bad.")
@click.option("--strict", is_flag=True, help="Metadata that another tool has written anew is bad.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@max_size_option
@json_option
@click.pass_context
def command(context: click.Context, /, path: Path, **options: Any) -> None:
    """Check every file of a bundle against its lock: none changed, none missing, none more.

    Of a folder in use, version control, caches of tools and compiled modules are not asked about.
    """
    demands = Demands(**{key: options[key] for key in ("require_lock", "strict", "max_size")})
    label = "stdin" if str(path) == "-" else path_text(path)
    checked = verify_folder(path, demands) if path.is_dir() else _archive(path, demands, hidden=options["no_progress"])
    remark((label, one) for one in checked.findings)
    answer(_lines(checked, label), _content(checked, label), ok=checked.good)
    if not checked.good:
        context.exit(Exit.FINDINGS)


def _archive(path: Path, demands: Demands, *, hidden: bool) -> Checked:
    if str(path) == "-":
        return verify_archive(binary_stdin(), demands)
    with meter(f"Verifying {path.name}", hidden=hidden) as shown, path.open("rb") as source:
        progress = shown.begin(os.fstat(source.fileno()).st_size).advance
        return verify_archive(cast("BinaryIO", Watched(source, progress)), demands)


def _lines(checked: Checked, label: str) -> Iterator[str]:
    if not checked.good:
        yield f"{label}: bad ({counted(count(checked.findings), 'error')})"
    elif checked.lock is None:
        yield f"{label}: not verified, for it has no lock"
    else:
        yield f"{label}: good ({counted(checked.files, 'file')}, {amount(checked.size)})"
        yield f"contents: sha256 {checked.lock.tree_sha256}"


def _content(checked: Checked, label: str) -> dict[str, Any]:
    return {
        "path": label,
        "locked": checked.lock is not None,
        "tree_sha256": checked.lock.tree_sha256 if checked.lock else None,
        "findings": records(checked.findings, label),
        "summary": {"files": checked.files, "size": checked.size},
    }
