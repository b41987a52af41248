"""``tt-bundle lock``: write, or check, the lock file of a bundle's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle import lock
from vllm_tt.bundle.files import select
from vllm_tt.bundle.findings import Finding, finding
from vllm_tt.bundle.pack import write_aside
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.progress import meter
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option
from vllm_tt.cli.shipping import choice_of, choice_options, count, counted, exit_for, records

if TYPE_CHECKING:
    from vllm_tt.bundle.files import Selection

__all__ = ["command"]


@click.command("lock")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; fail when the lock is missing or stale.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@choice_options
@json_option
@click.pass_context
def command(context: click.Context, /, folder: Path, check: bool, **options: Any) -> None:
    """Write bundle.lock.json into DIR: size and digest of every file that 'pack' ships.

    'pack' makes the lock of its archive anew, so this is for bundles that travel as folders.
    """
    selection = select(folder, choice_of(options))
    content: dict[str, Any] = {"folder": str(folder), "findings": records(selection.findings, str(folder))}
    remark((selection.folder.name, one) for one in selection.findings)
    if selection.faulty:
        answer([f"not locked: {counted(count(selection.findings), 'error')}"], content, ok=False)
        context.exit(exit_for(selection.findings))
    with terminable(), meter(f"Reading {selection.folder.name}", hidden=options["no_progress"]) as shown:
        made = lock.make(selection, shown.begin(selection.size).advance)
        stale = _stale(selection, made) if check else None
        if not check:
            write_aside(selection.folder / lock.LOCK_NAME, lambda out: out.write(made.to_bytes()))
    if stale:
        remark([(selection.folder.name, stale)])
        content["findings"] += records([stale], str(folder))
    verb = "stale lock of" if stale else "good lock of" if check else "locked"
    size = f"{counted(len(made.files), 'file')} ({amount(selection.size)})"
    lines = [f"{verb} {size}: {path_text(folder / lock.LOCK_NAME)}", f"contents: sha256 {made.tree_sha256}"]
    content |= {
        "lock": str(folder / lock.LOCK_NAME),
        "tree_sha256": made.tree_sha256,
        "summary": {"files": len(made.files), "size": selection.size},
    }
    answer(lines, content, ok=stale is None)
    if stale:
        context.exit(Exit.FINDINGS)


def _stale(selection: Selection, made: lock.Lock) -> Finding | None:
    """What is wrong with the lock that is there; another version of this tool may have made it."""
    known = lock.read(selection.folder)
    if known is None:
        return lock.missing(required=True)
    if isinstance(known, Finding):
        return known
    if (known.name, known.version, known.files) == (made.name, made.version, made.files):
        return None
    return finding("TB817", f"{lock.LOCK_NAME} is stale: 'tt-bundle lock {path_text(selection.folder)}' makes it anew")
