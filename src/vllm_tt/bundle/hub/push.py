"""Publishes a bundle as one commit: a checked copy of the files it ships, with its lock, in ``vllm_bundle/``.

Around it lie a manifest for tt-model and a README with our tags. Files of the bundle that are gone
are removed; everything else in the repository stays. A commit is made only on top of the one that
was looked at.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.bundle import lock
from vllm_tt.bundle.files import LOCK_NAME, Choice, Selection, select
from vllm_tt.bundle.findings import Finding, Severity, finding
from vllm_tt.bundle.hub.card import CARD_NAME, TAGS, FrontMatterUnreadable, new_card, with_tags
from vllm_tt.bundle.hub.client import Change, Committed
from vllm_tt.bundle.hub.download import read
from vllm_tt.bundle.hub.errors import Conflict, HubError, NotFound, RevisionMissing
from vllm_tt.bundle.hub.layouts import BUNDLE_DIR
from vllm_tt.bundle.hub.manifest import MANIFEST_NAME, device_architecture, manifest_for
from vllm_tt.bundle.hub.origin import Origin, read_origin, write_origin
from vllm_tt.bundle.hub.repo import RepoRef
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.bundle.hub.client import Client, RemoteFile, Snapshot
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["Incomplete", "NotPushed", "OtherLayout", "Pushed", "Request", "push"]

_MAX_CARD = 4 << 20


class NotPushed(TTError):
    """{name} was not pushed: {faults}"""

    def __init__(self, *, findings: tuple[Finding, ...], **facts: object) -> None:
        self.findings = findings
        super().__init__(**facts)

    def __reduce__(self) -> tuple[object, ...]:
        return _not_pushed, (self.findings, self.facts)


class OtherLayout(TTError):
    """{repo} holds a bundle that was not pushed by this tool ({found}). Push to another repository or branch."""


class Incomplete(HubError):
    """{repo} at commit {commit} does not hold {path!r} as it was pushed. Does the repository's .gitignore name it?"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to publish, and how."""

    folder: Path
    repo: str
    branch: str = "main"
    message: str | None = None
    public: bool = False
    """Whether a repository that is made is public."""
    pull_request: bool = False
    dry_run: bool = False
    architecture: str | None = None
    """Device architecture for tt-model; None for that of the metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """What was, or with a dry run would be, done."""

    repo: str
    branch: str
    commit: str | None
    """Full sha; that of the branch when there was nothing to push, None for a dry run with something to."""
    new: bool
    """Whether the repository was made."""
    private: bool
    written: tuple[str, ...]
    """Paths in the repository that are added or changed."""
    removed: tuple[str, ...]
    size: int
    """Bytes of what is written."""
    tree_sha256: str
    pull_request: str | None
    findings: tuple[Finding, ...]
    """What is not an error."""


def push(client: Client, request: Request, extra: Sequence[Finding] = ()) -> Pushed:
    """Publish the bundle; ``extra`` are findings of other checks, an error of which refuses it.

    Raises NotPushed, OtherLayout, HubError, OSError.
    """
    selection = select(request.folder, Choice())
    findings = _unrefused(selection, extra)
    metadata = selection.metadata
    assert metadata is not None, "no metadata without an error"
    before = _before(client, request)
    with tempfile.TemporaryDirectory(prefix="tt-bundle-push-") as scratch:
        staged = _Staged(root=Path(scratch))
        tree = staged.bundle(selection)
        name = metadata.name or selection.folder.name
        staged.write(MANIFEST_NAME, manifest_for(name, metadata, request.architecture or device_architecture(metadata)))
        card, notes = _card(client, before, request, selection, metadata)
        if card is not None:
            staged.write(CARD_NAME, card.encode("utf-8"))
        written, removed = _changes(staged, before)
        size = sum(local.stat().st_size for local in written.values())
        version = f" {metadata.version}" if metadata.version else ""
        done = _commit(client, request, staged, before, request.message or f"Push {name}{version}")
    nothing = before is not None and not (written or removed)
    return Pushed(
        repo=request.repo,
        branch=request.branch,
        commit=done.commit if done else before.commit if before and nothing else None,
        new=before is None,
        private=before.private if before else not request.public,
        written=tuple(sorted(written)),
        removed=tuple(sorted(removed)),
        size=size,
        tree_sha256=tree,
        pull_request=done.pull_request if done else None,
        findings=(*findings, *notes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Staged:
    """The files to publish, laid out as in the repository."""

    root: Path

    def bundle(self, selection: Selection) -> str:
        """Copy the bundle with its lock; the digest of its contents."""
        locked = []
        for file in selection.files:
            target = self.write(f"{BUNDLE_DIR}/{file.path}", b"")
            with file.open() as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            with target.open("rb") as copied:
                digest = lock.digested(copied)
            locked.append(lock.LockedFile(path=file.path, size=file.size, sha256=digest))
        made = lock.lock_of(selection.metadata, locked)
        self.write(f"{BUNDLE_DIR}/{LOCK_NAME}", made.to_bytes())
        return made.tree_sha256

    def write(self, path: str, data: bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    def files(self) -> dict[str, Path]:
        """Every file, by its path in the repository."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path for path in found}


def _unrefused(selection: Selection, extra: Sequence[Finding]) -> tuple[Finding, ...]:
    """All findings, each once; raises NotPushed when one is an error."""
    findings = tuple({(one.code, one.text): one for one in (*extra, *selection.findings)}.values())
    faults = [one.text for one in findings if one.severity is Severity.ERROR]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise NotPushed(findings=findings, name=selection.folder.name, faults=faults[0] + more)
    return findings


def _before(client: Client, request: Request) -> Snapshot | None:
    """What the branch holds; None when there is no repository."""
    try:
        before = client.snapshot(RepoRef(repo=request.repo, revision=request.branch))
    except NotFound:
        return None
    except RevisionMissing:
        before = client.snapshot(RepoRef(repo=request.repo))  # what the new branch will start from
    folders = sorted({path.partition("/")[0] for path in before.files if path.endswith("/" + FILE_NAME)} - {BUNDLE_DIR})
    if found := [FILE_NAME] if FILE_NAME in before.files else [folder + "/" for folder in folders]:
        raise OtherLayout(repo=request.repo, found=", ".join(found))
    return before


def _card(
    client: Client, before: Snapshot | None, request: Request, selection: Selection, metadata: Metadata
) -> tuple[str | None, list[Finding]]:
    """The README to publish; None to leave the one that is there, with the reason when it lacks our tags."""
    with tempfile.TemporaryDirectory(prefix="tt-bundle-card-") as scratch:
        present = read(client, before, CARD_NAME, Path(scratch), _MAX_CARD) if before else None
    own = next((file for file in selection.files if file.path == CARD_NAME), None)
    try:
        if present is not None:
            return with_tags(present.decode("utf-8"), TAGS), []
        if own is not None and (before is None or CARD_NAME not in before.files):
            return with_tags(own.source.read_bytes().decode("utf-8"), TAGS), []
    except (FrontMatterUnreadable, UnicodeDecodeError):
        return None, [finding("TB959", f"{CARD_NAME} of the repository is left as it is: its tags cannot be read")]
    if before is not None and CARD_NAME in before.files:
        return None, []
    return new_card(metadata.name or selection.folder.name, request.repo, metadata, TAGS), []


def _changes(staged: _Staged, before: Snapshot | None) -> tuple[dict[str, Path], frozenset[str]]:
    """What to write and what to remove."""
    files = staged.files()
    present = before.files if before else {}
    written = {path: local for path, local in files.items() if not _is_same(present.get(path), local)}
    gone = {path for path in present if path.startswith(BUNDLE_DIR + "/") and path not in files}
    return written, frozenset(gone)


def _is_same(remote: RemoteFile | None, local: Path) -> bool:
    return remote is not None and bool(remote.sha1 or remote.sha256) and remote.difference(local) is None


def _commit(
    client: Client, request: Request, staged: _Staged, before: Snapshot | None, message: str
) -> Committed | None:
    """Make the commit where there is something to commit."""
    written, removed = _changes(staged, before)
    if request.dry_run or not (written or removed):
        return None
    origin = read_origin(request.folder)
    mine = origin is not None and origin.repo == request.repo and origin.revision == request.branch
    if before is None:
        client.create(request.repo, private=not request.public)
        before = client.snapshot(RepoRef(repo=request.repo))
    elif mine and origin is not None and origin.commit != before.commit and not request.pull_request:
        raise Conflict(repo=request.repo)
    if before.revision != request.branch:
        client.branch(request.repo, request.branch, before.commit)
    change = Change(
        repo=request.repo,
        branch=request.branch,
        parent=before.commit,
        message=message,
        files=written,
        removed=removed,
        pull_request=request.pull_request,
    )
    try:
        done = client.commit(change)
    except Conflict:
        done = _landed(client, request, staged)
    _check(client, request, staged, done.commit)
    if mine and not request.pull_request:
        write_origin(request.folder, Origin(repo=request.repo, commit=done.commit, revision=request.branch))
    return done


def _landed(client: Client, request: Request, staged: _Staged) -> Committed:
    """The head, when it is this very push whose answer was lost; else Conflict."""
    head = client.snapshot(RepoRef(repo=request.repo, revision=request.branch))
    if any(_changes(staged, head)):
        raise Conflict(repo=request.repo)
    return Committed(commit=head.commit, pull_request=None)


def _check(client: Client, request: Request, staged: _Staged, commit: str) -> None:
    after = client.snapshot(RepoRef(repo=request.repo, revision=commit))
    written, removed = _changes(staged, after)
    if wrong := sorted([*written, *removed]):
        raise Incomplete(repo=request.repo, commit=commit[:12], path=wrong[0])


def _not_pushed(findings: tuple[Finding, ...], facts: dict[str, object]) -> NotPushed:
    return NotPushed(findings=findings, **facts)
