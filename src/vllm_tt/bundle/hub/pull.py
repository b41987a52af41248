"""Installs the bundles of a repository, pinned to a commit: nothing is installed before all of it is right.

Code that is fetched is never run: neither scripts of the repository nor the adapter.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_tt.bundle import lock
from vllm_tt.bundle.files import LOCK_NAME
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.hub import download, layouts
from vllm_tt.bundle.hub.manifest import MANIFEST_NAME, MAX_BYTES, Manifest
from vllm_tt.bundle.hub.origin import Origin, read_origin, write_origin
from vllm_tt.bundle.hub.repo import folder_name
from vllm_tt.bundle.install import DestinationExists, install, staging
from vllm_tt.bundle.metadata import FILE_NAME
from vllm_tt.bundle.reading import Skipped, load
from vllm_tt.bundle.requires import Installed, check_requires
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from vllm_tt.bundle.hub.client import Client, Progress, Snapshot
    from vllm_tt.bundle.hub.layouts import Contents, Source
    from vllm_tt.bundle.hub.repo import RepoRef

__all__ = ["InstalledFromElsewhere", "InstalledOther", "Item", "Modified", "Plan", "Request", "Rejected", "pull"]


class InstalledFromElsewhere(TTError):
    """{folder!r} is already installed from {other!r}. Remove it first, or name another folder with --into."""


class InstalledOther(DestinationExists):
    """{name} is installed at commit {here}; {revision} is {there}; use --force to replace it"""


class Modified(DestinationExists):
    """{name} is installed at commit {here} and was changed since; use --force to replace it"""


class Rejected(TTError):
    """{repo} was not installed: {faults}"""

    def __init__(self, *, findings: tuple[tuple[str, Finding], ...], **facts: object) -> None:
        self.findings = findings
        """Each with the name of its bundle."""
        super().__init__(**facts)

    def __reduce__(self) -> tuple[object, ...]:
        return _rejected, (self.findings, self.facts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to install, and where."""

    ref: RepoRef
    into: Path
    only: tuple[str, ...] = ()
    """Names of bundles; all when empty."""
    force: bool = False
    """Replace what is installed."""
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One bundle, and what is to become of it."""

    source: Source
    destination: Path
    size: int
    """Bytes to fetch."""
    current: bool = False
    """Whether the same commit is installed already, unchanged."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The commit, what it holds, and what is, or with a dry run would be, done."""

    snapshot: Snapshot
    contents: Contents
    items: tuple[Item, ...]
    findings: tuple[Finding, ...] = ()


def pull(
    client: Client, request: Request, begin: Callable[[int], Progress], environ: Mapping[str, str] | None = None
) -> Plan:
    """Install what ``request`` asks for; ``begin`` is told how many bytes are to be fetched.

    Raises HubError, NoBundle and their like, DestinationExists, InstalledFromElsewhere, Rejected, OSError.
    """
    snapshot = client.snapshot(request.ref)
    with download.gathering(snapshot, os.environ if environ is None else environ) as folder:
        text = download.read(client, snapshot, MANIFEST_NAME, folder, MAX_BYTES)
        manifest = Manifest.parse(text) if text is not None else None
        contents = layouts.recognise(snapshot.repo, snapshot.files, manifest)
        sources = layouts.chosen(snapshot.repo, contents, request.only)
        items = tuple(_item(request, snapshot, contents, source) for source in sources)
        if not request.dry_run:
            wanted = {path for item in items if not item.current for path in item.source.files.values()}
            files = [snapshot.files[path] for path in wanted]
            download.gather(client, snapshot, files, folder, begin(sum(file.size for file in files)))
            items = _install(snapshot, items, folder, request, manifest)
    return Plan(snapshot=snapshot, contents=contents, items=items, findings=tuple(_notes(contents)))


def _item(request: Request, snapshot: Snapshot, contents: Contents, source: Source) -> Item:
    """What is to become of a bundle; raises when its place is taken."""
    name = folder_name(snapshot.repo, source.name if contents.several else None)
    destination = request.into / name
    size = sum(snapshot.files[path].size for path in source.files.values())
    current = False
    if os.path.lexists(destination):
        origin = read_origin(destination)
        if origin is not None and origin.repo != snapshot.repo:
            raise InstalledFromElsewhere(folder=name, other=origin.repo)
        same = origin is not None and origin.commit == snapshot.commit
        current = same and not request.force and _is_unchanged(destination, snapshot, source)
        if not (current or request.force):
            _raise_taken(name, origin, snapshot)
    return Item(source=source, destination=destination, size=size, current=current)


def _raise_taken(name: str, origin: Origin | None, snapshot: Snapshot) -> None:
    if origin is None:
        raise DestinationExists(name=shown(name))
    if origin.commit == snapshot.commit:
        raise Modified(name=shown(name), here=origin.commit[:12])
    raise InstalledOther(
        name=shown(name), here=origin.commit[:12], revision=shown(snapshot.revision), there=snapshot.commit[:12]
    )


def _is_unchanged(folder: Path, snapshot: Snapshot, source: Source) -> bool:
    contents, others = lock.folder_contents(folder)
    if others or not contents.keys() <= source.files.keys() | {FILE_NAME}:
        return False
    if source.metadata is not None and (folder / FILE_NAME).read_bytes() != source.metadata:
        return False
    return all(
        snapshot.files[there].difference(folder / path) is None
        if (folder / path).is_file()
        else path in source.optional
        for path, there in source.files.items()
    )


def _install(
    snapshot: Snapshot, items: tuple[Item, ...], folder: Path, request: Request, manifest: Manifest | None
) -> tuple[Item, ...]:
    """Stage and check every bundle before the first one is put in its place."""
    checked: list[Item] = []
    staged: list[tuple[Path, Item]] = []
    with ExitStack() as stack:
        for item in items:
            if not item.current:
                new = stack.enter_context(staging(item.destination))
                staged.append((new, item))
                found = tuple(_stage(item.source, folder, new, manifest))
                checked.append(replace(item, findings=found))
            else:
                checked.append(item)
        _raise_rejected(snapshot.repo, checked)
        for new, item in staged:
            bundle = item.source.name
            write_origin(
                new, Origin(repo=snapshot.repo, commit=snapshot.commit, revision=snapshot.revision, bundle=bundle)
            )
            install(new, item.destination, force=request.force)
    return tuple(checked)


def _stage(source: Source, folder: Path, new: Path, manifest: Manifest | None) -> Iterator[Finding]:
    """Fill ``new`` with the bundle's files and say what is wrong with them."""
    for path, there in source.files.items():
        target = new / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / there, target)
    if source.metadata is not None:
        (new / FILE_NAME).write_bytes(source.metadata)
    _drop_unlisted(source, new)
    found = lock.verify(new, in_use=False)
    known = manifest.files if manifest is not None else {}
    listed = {path: known.get(there) or known.get(path) for path, there in source.files.items()}
    for path in sorted(known.keys() - source.files.values()):
        if path.startswith(layouts.BUNDLE_DIR + "/") and not source.shared:
            yield finding("TB908", f"{shown(path)} is missing; {MANIFEST_NAME} lists it")
    if any(listed.values()) and not source.shared:
        yield from _against_manifest(new, source, listed)
        found = tuple(one for one in found if one.code != "TB911")
    yield from found
    loaded = load(new)
    if isinstance(loaded, Skipped):
        yield replace(loaded.finding, severity=Severity.ERROR)
    else:
        yield from check_requires(loaded.metadata.requires, Installed())


def _drop_unlisted(source: Source, new: Path) -> None:
    """A repository's own files beside the bundle's are taken only when the bundle's lock lists them."""
    locked = lock.parse((new / LOCK_NAME).read_bytes()) if (new / LOCK_NAME).is_file() else None
    listed = {file.path for file in locked.files} if isinstance(locked, lock.Lock) else set()
    for path in source.optional - listed:
        (new / path).unlink()


def _against_manifest(new: Path, source: Source, listed: Mapping[str, lock.LockedFile | None]) -> Iterator[Finding]:
    contents, _ = lock.folder_contents(new, in_use=False)
    for path in sorted(contents.keys() & source.files.keys()):
        entry = listed[path]
        if entry is None:
            yield finding("TB909", f"{shown(path)} is not in {MANIFEST_NAME}")
        elif (contents[path].size, contents[path].sha256) != (entry.size, entry.sha256):
            yield finding("TB907", f"{shown(path)} differs from {MANIFEST_NAME}")


def _raise_rejected(repo: str, items: list[Item]) -> None:
    findings = tuple((item.destination.name, found) for item in items for found in item.findings)
    faults = [found.text for _, found in findings if found.severity is Severity.ERROR]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise Rejected(findings=findings, repo=repo, faults=faults[0] + more)


def _notes(contents: Contents) -> Iterator[Finding]:
    if contents.scripts:
        names = " and ".join(map(shown, contents.scripts))
        yield finding("TB962", f"the repository has {names}, which tt-bundle never runs")


def _rejected(findings: tuple[tuple[str, Finding], ...], facts: dict[str, object]) -> Rejected:
    return Rejected(findings=findings, **facts)
