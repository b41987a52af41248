"""``tt-bundle pull``: install the bundles of a Hub repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.files import ORIGIN_NAME
from vllm_tt.bundle.hub import pull as hub
from vllm_tt.bundle.hub.client import connect
from vllm_tt.bundle.hub.places import install_folder
from vllm_tt.bundle.hub.repo import parse_ref
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.progress import meter
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.cli.shipping import counted, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_tt.bundle.findings import Finding

__all__ = ["command"]


@click.command("pull")
@click.argument("repository", metavar="ORG/NAME[@REV]")
@click.option("--revision", metavar="REV", help="Branch, tag or commit (short or full); the main branch by default.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of bundles to install into; EXTRA_MODELS_DIR, else tt-model's folder by default.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Install this one of several bundles; repeatable.")
@click.option("--force", is_flag=True, help="Replace what is installed.")
@click.option("--dry-run", is_flag=True, help="Say what would be installed, and fetch no more than that takes.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@json_option
@click.pass_context
def command(
    context: click.Context, /, repository: str, revision: str | None, into: Path | None, **options: Any
) -> None:
    """Install the bundles of a repository of the Hub.

    The revision is resolved to a commit first; what is installed is that commit, checked file by file, and is
    recorded. Nothing that is fetched is run.
    """
    hidden = options.pop("no_progress")
    request = hub.Request(
        ref=parse_ref(repository, revision), into=(into or install_folder()).expanduser().absolute(), **options
    )
    client = connect()
    try:
        with terminable(), meter(f"Fetching {request.ref.repo}", hidden=hidden or request.dry_run) as shown:
            plan = hub.pull(client, request, shown.begin)
    except hub.Rejected as error:
        remark(error.findings)
        if not session().json:
            raise
        answer((), {"findings": _records(error.findings)}, ok=False)
        context.exit(Exit.FINDINGS)
    named = [(request.ref.repo, one) for one in plan.findings]
    named += [(item.destination.name, one) for item in plan.items for one in item.findings]
    remark(named)
    answer(_lines(plan, request), {**_content(plan, request), "findings": _records(named)})


def _lines(plan: hub.Plan, request: hub.Request) -> Iterator[str]:
    snapshot = plan.snapshot
    yield f"{snapshot.repo} at {snapshot.revision} is commit {snapshot.commit} ({plan.contents.layout})"
    for item in plan.items:
        size = f"{counted(len(item.source.files), 'file')}, {amount(item.size)}"
        yield f"{_status(item, request)} {item.destination.name} ({size}): {path_text(item.destination)}"
    if not request.dry_run:
        for item in plan.items:
            yield f"Serve it: EXTRA_MODELS_DIR={path_text(request.into)} tt-bundle serve {item.destination.name}"


def _records(named: Iterable[tuple[str, Finding]]) -> list[dict[str, Any]]:
    return [record for name, one in named for record in records((one,), name)]


def _status(item: hub.Item, request: hub.Request) -> str:
    return "up to date:" if item.current else "would install" if request.dry_run else "installed"


def _content(plan: hub.Plan, request: hub.Request) -> dict[str, Any]:
    snapshot = plan.snapshot
    return {
        "repo": snapshot.repo,
        "revision": snapshot.revision,
        "commit": snapshot.commit,
        "layout": plan.contents.layout,
        "dry_run": request.dry_run,
        "record": ORIGIN_NAME,
        "bundles": [
            {
                "name": item.destination.name,
                "bundle": item.source.name,
                "folder": str(item.destination),
                "status": _status(item, request).rstrip(":"),
                "files": len(item.source.files),
                "size": item.size,
            }
            for item in plan.items
        ],
    }
