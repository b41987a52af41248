"""``tt-bundle unpack``: a bundle from its archive, verified, in place in one step."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from vllm_tt import env
from vllm_tt.bundle.discover import folder_list
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.bundle.unpack import Demands, Unpacked, unpack
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.progress import meter
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option
from vllm_tt.cli.shipping import Watched, binary_stdin, count, counted, max_size_option, records

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command"]


@click.command("unpack")
@click.argument(
    "archive", metavar="ARCHIVE|-", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "--into",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of bundles; the first of EXTRA_MODELS_DIR, else the current folder by default.",
)
@click.option("--name", help="Name of the bundle's folder; the metadata's, else the archive's by default.")
@click.option("--force", is_flag=True, help="Replace a bundle of that name.")
@click.option("--require-lock", is_flag=True, help="Refuse an archive without bundle.lock.json.")
@click.option("--strict", is_flag=True, help="Refuse metadata that another tool has written anew.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@max_size_option
@json_option
@click.pass_context
def command(context: click.Context, /, archive: Path, into: Path | None, **options: Any) -> None:
    """Check an archive to its last byte and put its bundle into a folder of bundles.

    A bad archive leaves nothing behind. A server that starts meanwhile sees no half of a bundle.
    """
    into = (into or _default_folder()).expanduser().absolute()
    demands = Demands(**{key: options[key] for key in ("require_lock", "strict", "max_size")})
    from_stdin = str(archive) == "-"
    label = "stdin" if from_stdin else archive.name
    opened = nullcontext(binary_stdin()) if from_stdin else archive.open("rb")
    hidden = options["no_progress"] or from_stdin
    with terminable(), opened as source, meter(f"Unpacking {label}", hidden=hidden) as shown:
        progress = shown.begin(0 if from_stdin else os.fstat(source.fileno()).st_size).advance
        watched = cast("BinaryIO", Watched(source, progress))
        stem = "" if from_stdin else archive.name
        done = unpack(watched, into, demands, name=options["name"], stem=stem, force=options["force"])
    remark((label, one) for one in done.checked.findings)
    answer(_lines(done, label), _content(done, label), ok=done.folder is not None)
    if done.folder is None:
        context.exit(Exit.FINDINGS)


def _default_folder() -> Path:
    return next(iter(folder_list(env.EXTRA_MODELS_DIR.get())), Path.cwd())


def _lines(done: Unpacked, label: str) -> Iterator[str]:
    checked = done.checked
    if done.folder is None:
        yield f"not unpacked: {counted(count(checked.findings), 'error')} in {label}; nothing was written"
        return
    yield f"unpacked {counted(checked.files, 'file')} ({amount(checked.size)}) into {path_text(done.folder)}"
    if checked.lock:
        yield f"contents: sha256 {checked.lock.tree_sha256} (as locked)"


def _content(done: Unpacked, label: str) -> dict[str, Any]:
    checked = done.checked
    return {
        "folder": str(done.folder) if done.folder else None,
        "name": done.folder.name if done.folder else None,
        "tree_sha256": checked.lock.tree_sha256 if checked.lock else None,
        "findings": records(checked.findings, label),
        "summary": {"files": checked.files, "size": checked.size},
    }
