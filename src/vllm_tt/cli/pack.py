"""``tt-bundle pack``: one archive of a bundle, the same bytes whenever and wherever it is packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.files import select
from vllm_tt.bundle.pack import default_name, pack, pack_to
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.progress import meter
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.cli.shipping import choice_of, choice_options, count, counted, exit_for, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_tt.bundle.files import Selection
    from vllm_tt.bundle.pack import Packed

__all__ = ["command"]

_STDOUT = Path("-")


@click.command("pack")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="The archive; - for stdout.")
@click.option("--dry-run", is_flag=True, help="List what would be shipped and what left out, and write nothing.")
@click.option("--force", is_flag=True, help="Replace the output even when it is no archive of ours.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@choice_options
@json_option
@click.pass_context
def command(context: click.Context, /, folder: Path, output: Path | None, **options: Any) -> None:
    """Pack the bundle in DIR, with a lock of its contents, into NAME-VERSION.tar.gz in the current folder.

    Secrets, weights and links that leave the folder are errors, and nothing is written then.
    """
    _check_stdout(output)
    selection = select(folder, choice_of(options))
    place = output or Path(default_name(selection, folder))
    remark((selection.folder.name, one) for one in selection.findings)
    content: dict[str, Any] = {"folder": str(folder), "findings": records(selection.findings, str(folder))}
    if selection.faulty:
        errors = counted(count(selection.findings), "error")
        _say([f"not packed: {errors}"], content, to_stdout=output == _STDOUT, ok=False)
        context.exit(exit_for(selection.findings))
    content |= {**_listed(selection), "dry_run": options["dry_run"]}
    if options["dry_run"]:
        answer(_plan(selection, place), {**content, "archive": None})
        return
    with terminable(), meter(f"Packing {selection.folder.name}", hidden=options["no_progress"]) as shown:
        progress = shown.begin(selection.size).advance
        if output == _STDOUT:
            packed = pack(selection, sys.stdout.buffer, progress)
        else:
            packed = pack_to(selection, place, force=options["force"], progress=progress)
    lines = _lines(selection, packed, path_text(place) if output != _STDOUT else "stdout")
    _say(lines, {**content, "archive": _content(packed, place)}, to_stdout=output == _STDOUT)


def _say(lines: Iterable[str], content: dict[str, Any], *, to_stdout: bool, ok: bool = True) -> None:
    """The answer, on stderr when the archive has stdout."""
    if not to_stdout:
        answer(lines, content, ok=ok)
        return
    for line in lines:
        click.echo(line, err=True)


def _check_stdout(output: Path | None) -> None:
    if output != _STDOUT:
        return
    if session().json:
        raise click.UsageError("--json and -o - both want stdout: name a file with -o.")
    if sys.stdout.isatty():
        raise click.UsageError("An archive is not for a terminal: name a file with -o.")


def _plan(selection: Selection, place: Path) -> Iterator[str]:
    yield f"would pack {_size(selection)} into {path_text(place)}:"
    yield from (f"  + {file.path} ({amount(file.size)})" for file in selection.files)
    yield from (f"  - {path!r} (left out)" for path in selection.left_out)


def _lines(selection: Selection, packed: Packed, place: str) -> Iterator[str]:
    yield f"packed {_size(selection)} into {place} ({amount(packed.size)})"
    yield f"archive:  sha256 {packed.sha256}"
    yield f"contents: sha256 {packed.lock.tree_sha256}"


def _size(selection: Selection) -> str:
    return f"{counted(len(selection.files), 'file')} ({amount(selection.size)})"


def _listed(selection: Selection) -> dict[str, Any]:
    return {
        "files": [{"path": file.path, "size": file.size} for file in selection.files],
        "left_out": list(selection.left_out),
        "summary": {"files": len(selection.files), "size": selection.size},
    }


def _content(packed: Packed, place: Path) -> dict[str, Any]:
    return {
        "path": str(place),
        "size": packed.size,
        "sha256": packed.sha256,
        "tree_sha256": packed.lock.tree_sha256,
    }
