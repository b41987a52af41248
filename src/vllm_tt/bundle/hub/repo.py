"""Names of repositories, and the folders they are installed as."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_tt.bundle.findings import shown
from vllm_tt.errors import ConfigError

__all__ = ["RepoIdInvalid", "RepoRef", "RevisionInvalid", "folder_name", "parse_ref"]

_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_MAX_ID = 96
_REVISION = re.compile(r"(?!/)(?!.*(?://|\.\.|@\{|\\))[^\x00-\x20\x7f~^:?*\[]{1,200}(?<![/.])")


class RepoIdInvalid(ConfigError):
    """{found} is not the name of a repository: expected 'organisation/name' of letters, digits, '-', '_' and '.'."""


class RevisionInvalid(ConfigError):
    """{found} is not the name of a branch, a tag or a commit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoRef:
    """A repository, and the branch, tag or commit that was asked for."""

    repo: str
    revision: str | None = None


def parse_ref(text: str, revision: str | None = None) -> RepoRef:
    """``organisation/name`` or ``organisation/name@revision``; ``revision`` is one given apart."""
    repo, at, inside = text.partition("@")
    parts = repo.split("/")
    good = len(parts) == 2 and len(repo) <= _MAX_ID and all(_PART.fullmatch(part) for part in parts)
    # The Hub allows neither, and '--' and '..' would make two repositories one folder.
    if not good or "--" in repo or ".." in repo or parts[1].endswith(".git"):
        raise RepoIdInvalid(found=shown(repo))
    if at and revision is not None and inside != revision:
        raise RevisionInvalid(found=f"{shown(inside)} beside --revision {shown(revision)}")
    wanted = inside if at else revision
    if wanted is not None and not _REVISION.fullmatch(wanted):
        raise RevisionInvalid(found=shown(wanted))
    return RepoRef(repo=repo, revision=wanted)


def folder_name(repo: str, bundle: str | None = None) -> str:
    """The folder that a repository is installed as: tt-model's rule, with the bundle's name where it holds several."""
    name = repo.replace("/", "__")
    return name if bundle is None else f"{name}__{bundle}"
