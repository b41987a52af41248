"""``tt-bundle push``: publish a bundle in a Hub repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_tt.bundle.hub import push as hub
from vllm_tt.bundle.hub.client import connect
from vllm_tt.bundle.hub.manifest import ARCHITECTURES
from vllm_tt.bundle.hub.repo import parse_ref
from vllm_tt.bundle.paths import amount
from vllm_tt.bundle.validate import validate
from vllm_tt.cli.ending import terminable
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.progress import meter, wants_bars
from vllm_tt.cli.remarks import remark
from vllm_tt.cli.report import answer, json_option, session
from vllm_tt.cli.shipping import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_tt.bundle.findings import Finding

__all__ = ["command"]


@click.command("push")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("repository", metavar="ORG/NAME")
@click.option("--revision", metavar="BRANCH", help="Branch to push to; it is made where there is none.")
@click.option("-m", "--message", metavar="TEXT", help="Title of the commit.")
@click.option("--public", is_flag=True, help="Make a new repository public; it is private otherwise.")
@click.option("--create-pr", "pull_request", is_flag=True, help="Open a pull request instead of changing the branch.")
@click.option("--no-verify", is_flag=True, help="Push although 'validate' finds errors; never with secrets.")
@click.option(
    "--tt-arch",
    "architecture",
    type=click.Choice(ARCHITECTURES),
    help="Device architecture that tt-model is told; by the metadata's meshes and launch map by default.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be pushed, and change nothing.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@json_option
@click.pass_context
def command(context: click.Context, /, folder: Path, repository: str, revision: str | None, **options: Any) -> None:
    """Publish the bundle in DIR as one commit of a repository of the Hub.

    Shipped is what 'pack' ships, with a lock. Files that are gone are removed, the rest of the repository stays.
    The commit is made only on top of the state that was looked at.
    """
    ref = parse_ref(repository, revision)
    hidden, no_verify = options.pop("no_progress"), options.pop("no_verify")
    request = hub.Request(folder=folder, repo=ref.repo, branch=ref.revision or "main", **options)
    findings = () if no_verify else validate(folder).findings
    name = folder.resolve().name
    try:
        done = _push(request, findings, hidden=hidden)
    except hub.NotPushed as error:
        remark((name, one) for one in error.findings)
        if not session().json:
            raise
        answer((), {"findings": records(error.findings, name)}, ok=False)
        context.exit(Exit.FINDINGS)
    remark((name, one) for one in done.findings)
    answer(_lines(done, request), {**_content(done, request), "findings": records(done.findings, name)})


def _push(request: hub.Request, findings: tuple[Finding, ...], *, hidden: bool) -> hub.Pushed:
    with terminable(), meter(f"Pushing to {request.repo}", hidden=hidden or request.dry_run or not wants_bars()):
        return hub.push(connect(), request, findings)


def _lines(done: hub.Pushed, request: hub.Request) -> Iterator[str]:
    visibility = "private" if done.private else "public"
    if request.dry_run:
        yield f"would push to {done.repo} ({'new, ' if done.new else ''}{visibility}), branch {done.branch}:"
        yield from (f"  + {path}" for path in done.written)
        yield from (f"  - {path}" for path in done.removed)
        if not (done.written or done.removed):
            yield "  nothing: it holds the bundle already"
    elif not (done.written or done.removed):
        yield f"nothing to push: {done.repo} ({visibility}) holds the bundle at commit {done.commit}"
    else:
        counts = f"{len(done.written)} written, {len(done.removed)} removed, {amount(done.size)}"
        yield f"pushed to {done.repo} ({visibility}), branch {done.branch}, commit {done.commit} ({counts})"
    yield f"contents: sha256 {done.tree_sha256}"
    if done.pull_request:
        yield f"pull request: {done.pull_request}"
    elif done.commit:
        yield f"Pull it: tt-bundle pull {done.repo}@{done.commit[:12]}"
    if request.public and not done.new and done.private:
        yield "The repository exists and stays private: its settings on the Hub change that."


def _content(done: hub.Pushed, request: hub.Request) -> dict[str, Any]:
    return {
        "repo": done.repo,
        "branch": done.branch,
        "commit": done.commit,
        "new": done.new,
        "private": done.private,
        "dry_run": request.dry_run,
        "written": list(done.written),
        "removed": list(done.removed),
        "size": done.size,
        "tree_sha256": done.tree_sha256,
        "pull_request": done.pull_request,
    }
