"""The Hub as few calls: what a revision is, which files a commit holds, one file of it, one commit."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from vllm_tt._version import __version__
from vllm_tt.bundle.hub.errors import (
    AddressInvalid,
    AmbiguousCommit,
    Damaged,
    HubError,
    HubMissing,
    Place,
    RevisionMissing,
    bare,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vllm_tt.bundle.hub.repo import RepoRef

__all__ = ["Change", "ChangeRefused", "Client", "Committed", "Progress", "RemoteFile", "Snapshot", "connect"]

T = TypeVar("T")

_SHORT_SHA = re.compile(r"[0-9a-f]{4,39}")
_CHUNK = 1 << 20


class Progress(Protocol):
    """Told of the bytes of a transfer as they come, from several threads."""

    def advance(self, size: int) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A file of a commit."""

    path: str
    size: int
    sha1: str | None = None
    """Of git's blob, for a file that lies in git itself."""
    sha256: str | None = None
    """Of the contents, for a large file."""

    def difference(self, local: Path) -> str | None:
        """How the file at ``local`` differs, or None when it is the same."""
        size = local.stat().st_size
        if size != self.size:
            return f"{size} of {self.size} bytes"
        digest = hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with local.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        expected = self.sha256 or self.sha1
        return None if expected in (None, digest.hexdigest()) else "its contents are not those of the commit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """One commit of a repository."""

    repo: str
    commit: str
    """Full sha."""
    revision: str
    """The branch, tag or commit that was asked for."""
    private: bool
    files: Mapping[str, RemoteFile]
    """By path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A commit to make."""

    repo: str
    branch: str
    parent: str
    """Full sha that the branch must still be at."""
    message: str
    files: Mapping[str, Path]
    """What to add or replace: the local file, by its path in the repository."""
    removed: frozenset[str] = frozenset()
    pull_request: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """A commit that was made."""

    commit: str
    pull_request: str | None
    """Its address."""


class ChangeRefused(HubError):
    """{host} does not accept the README.md of {repo}: its front matter is not what the Hub allows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """A connection to one Hub. The token is in no representation of it."""

    api: Any = field(repr=False)
    """huggingface_hub's HfApi."""
    endpoint: str
    has_token: bool
    waits: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Seconds before each further try when the server fails."""

    def place(self, repo: str, action: str = "read", revision: str | None = None) -> Place:
        return Place(repo=repo, endpoint=self.endpoint, has_token=self.has_token, action=action, revision=revision)

    def snapshot(self, ref: RepoRef) -> Snapshot:
        """The commit that a branch, tag, short or full sha names now, and its files."""
        info = self._info(ref)
        with translated(self.place(ref.repo, revision=ref.revision)):
            found = list(self.api.list_repo_tree(ref.repo, recursive=True, revision=info.sha))
        files = [_remote_file(entry) for entry in found if getattr(entry, "size", None) is not None]
        return Snapshot(
            repo=ref.repo,
            commit=info.sha,
            revision=ref.revision or "main",
            private=bool(info.private),
            files={file.path: file for file in files},
        )

    def fetch(self, snapshot: Snapshot, file: RemoteFile, folder: Path, progress: Progress) -> Path:
        """The file of the commit below ``folder``; one that is there complete is not fetched again."""
        # Older clients report no bytes while they come: then those of a file count at its end.
        live = "tqdm_class" in inspect.signature(self.api.hf_hub_download).parameters
        counted = _Counted(progress)
        extra = {"tqdm_class": counted.bar} if live else {}

        def download() -> str:
            path: str = self.api.hf_hub_download(
                snapshot.repo, file.path, revision=snapshot.commit, local_dir=str(folder), **extra
            )
            return path

        with translated(self.place(snapshot.repo, revision=snapshot.commit)):
            try:
                self._patient(download)
            except OSError as error:
                # Unlike the system's errors, the client's own "consistency check failed" has no number.
                if type(error) is OSError and error.errno is None:
                    raise Damaged(path=file.path, repo=snapshot.repo, cause="it broke off") from None
                raise
        progress.advance(file.size - counted.size)
        return folder / file.path

    def create(self, repo: str, *, private: bool) -> None:
        """Make a repository; one that exists meanwhile is a Conflict."""
        with translated(self.place(repo, "create")):
            self.api.create_repo(repo, private=private, exist_ok=False)

    def branch(self, repo: str, name: str, start: str) -> None:
        """Make a branch at the commit ``start``."""
        with translated(self.place(repo, "write to", name)):
            self.api.create_branch(repo, branch=name, revision=start, exist_ok=True)

    def commit(self, change: Change) -> Committed:
        """Make one commit, all of it or nothing; Conflict when the branch is not at ``parent`` any more."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations = [
            *(CommitOperationAdd(path, str(local)) for path, local in sorted(change.files.items())),
            *(CommitOperationDelete(path, is_folder=False) for path in sorted(change.removed)),
        ]
        with translated(self.place(change.repo, "write to", change.branch)):
            try:
                done = self.api.create_commit(
                    change.repo,
                    operations,
                    commit_message=change.message,
                    revision=change.branch,
                    create_pr=change.pull_request,
                    parent_commit=change.parent,
                )
            except ValueError as error:
                if "metadata in README" not in str(error):
                    raise
                raise ChangeRefused(repo=change.repo, host=bare(self.endpoint)) from None
        return Committed(commit=done.oid, pull_request=getattr(done, "pr_url", None))

    def _info(self, ref: RepoRef) -> Any:
        try:
            with translated(self.place(ref.repo, revision=ref.revision)):
                return self._patient(lambda: self.api.repo_info(ref.repo, revision=ref.revision))
        except RevisionMissing:
            if ref.revision is None or not _SHORT_SHA.fullmatch(ref.revision):
                raise
            commit = self._full_sha(ref)
        with translated(self.place(ref.repo, revision=commit)):
            return self._patient(lambda: self.api.repo_info(ref.repo, revision=commit))

    def _full_sha(self, ref: RepoRef) -> str:
        """The one commit of the repository's branches whose sha starts so."""
        start, facts = ref.revision or "", {"repo": ref.repo, "revision": ref.revision}
        with translated(self.place(ref.repo, revision=ref.revision)):
            refs = self._patient(lambda: self.api.list_repo_refs(ref.repo))
            found: set[str] = set()
            for branch in refs.branches:
                commits = self.api.list_repo_commits(ref.repo, revision=branch.name)
                found.update(one.commit_id for one in commits if one.commit_id.startswith(start))
        if not found:
            raise RevisionMissing(**facts)
        if len(found) > 1:
            raise AmbiguousCommit(**facts, found=", ".join(sorted(one[:12] for one in found)))
        return found.pop()

    def _patient(self, call: Callable[[], T]) -> T:
        """The result of a call that the client itself makes once only, tried again while the server fails."""
        for wait in self.waits:
            try:
                return call()
            except Exception as error:
                status = getattr(getattr(error, "response", None), "status_code", 0) or 0
                if status < 500:
                    raise
            time.sleep(wait)
        return call()


class _Counted:
    """Makes the progress bars that the client draws: they only count."""

    def __init__(self, progress: Progress) -> None:
        self.size = 0
        self._progress = progress

    def bar(self, *_arguments: object, **_options: object) -> _Counted:
        return self

    def update(self, size: float | None = 1) -> None:
        self.size += int(size or 0)
        self._progress.advance(int(size or 0))

    def set_postfix_str(self, *_arguments: object, **_options: object) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def connect(environ: Mapping[str, str] | None = None) -> Client:
    """A client for the Hub that ``HF_ENDPOINT`` names, with the user's token (``HF_TOKEN`` or the saved one)."""
    environ = os.environ if environ is None else environ
    try:
        import huggingface_hub
    except ImportError:
        raise HubMissing from None
    from huggingface_hub.utils.tqdm import disable_progress_bars

    # Its warnings show addresses, signed ones too; what matters is in our errors.
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    disable_progress_bars()
    endpoint = environ.get("HF_ENDPOINT", "").strip() or huggingface_hub.constants.ENDPOINT
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname:
        raise AddressInvalid(found=bare(endpoint))
    endpoint = endpoint.rstrip("/")
    token = huggingface_hub.get_token()
    api = huggingface_hub.HfApi(
        endpoint=endpoint, token=token or False, library_name="vllm-tt", library_version=__version__
    )
    return Client(api=api, endpoint=endpoint, has_token=bool(token))


def _remote_file(entry: Any) -> RemoteFile:
    if entry.lfs is not None:
        return RemoteFile(path=entry.path, size=entry.lfs.size, sha256=entry.lfs.sha256)
    sha1 = entry.blob_id if re.fullmatch(r"[0-9a-f]{40}", entry.blob_id or "") else None
    return RemoteFile(path=entry.path, size=entry.size, sha1=sha1)
