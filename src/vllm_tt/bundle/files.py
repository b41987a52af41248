"""Which files of a folder a bundle ships, and what forbids shipping them. Follows no link out of the folder."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vllm_tt.bundle import ignore
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME, Metadata
from vllm_tt.bundle.paths import amount, folded, is_reserved, path_fault
from vllm_tt.bundle.reading import Bundle, cause, load
from vllm_tt.bundle.secrets import MAX_SCANNED, named_like_a_secret, secrets_in
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "LOCK_NAME",
    "MAX_FILES",
    "MAX_SIZE",
    "ORIGIN_NAME",
    "BundleFile",
    "Changed",
    "Choice",
    "Selection",
    "UnknownAllowance",
    "is_junk",
    "select",
]

LOCK_NAME = "bundle.lock.json"
ORIGIN_NAME = ".tt-bundle-origin.json"
"""Where a pulled bundle came from; belongs to the folder and not to the bundle."""
MAX_FILES = 10_000
MAX_SIZE = 512 << 20

_JUNK = frozenset(
    {
        "__pycache__", ".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox",
        ".nox", ".venv", ".ipynb_checkpoints", ".idea", ".vscode", ".DS_Store", "Thumbs.db",
        ORIGIN_NAME,
    }
)  # fmt: skip
_WEIGHTS = (".safetensors", ".pt", ".pth", ".gguf", ".ckpt", ".onnx", ".h5", ".npz", ".tensorbin")
_LARGE_BIN = 5_000_000


class UnknownAllowance(ConfigError):
    """--allow-secret {path!r}: the bundle ships no file of that path. Give the path inside the bundle."""


class Changed(TTError):
    """{path!r} changed while being read. Nothing was written; try again when nothing writes to the folder."""

    exit_code = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What to ship although it is refused by default, and what to leave out."""

    exclude: tuple[str, ...] = ()
    """Patterns of ``.gitignore`` that come after those of ``.bundleignore``."""
    include_weights: bool = False
    allow_secrets: tuple[str, ...] = ()
    """Paths inside the bundle."""
    dereference: bool = False
    """Ship copies of the files outside the folder that links lead to."""
    max_size: int = MAX_SIZE
    """Bytes in all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleFile:
    """A file to ship: its path in the bundle and where its bytes are."""

    path: str
    source: Path
    """Absolute; no link."""
    size: int
    executable: bool = False
    identity: tuple[int, ...] = ()
    """Device, inode, size and times when it was selected."""

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file for reading; Changed when it is not, or does not stay, what was selected."""
        try:
            descriptor = os.open(self.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise Changed(path=self.path) from None
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
            self._check(descriptor)
            yield file
            self._check(descriptor)

    def _check(self, descriptor: int) -> None:
        if _identity(os.fstat(descriptor)) != self.identity:
            raise Changed(path=self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What a folder ships, in the order of the paths' UTF-8 bytes; with an error among the findings it must not."""

    folder: Path
    """Absolute, resolved."""
    metadata: Metadata | None
    """None when the metadata cannot be registered, which a finding says."""
    files: tuple[BundleFile, ...]
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]
    """Paths that are not shipped, folders with a slash at the end."""

    @property
    def faulty(self) -> bool:
        return any(found.severity is Severity.ERROR for found in self.findings)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(slots=True)
class _Walk:
    root: Path
    choice: Choice
    patterns: tuple[ignore.Pattern, ...]
    files: list[BundleFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def report(self, code: str, message: str, *, hint: str = "") -> None:
        self.findings.append(finding(code, message, hint=hint))


def select(folder: Path, choice: Choice | None = None) -> Selection:
    """The files that the bundle in ``folder`` ships. The lock file is never among them: it is made from them.

    Raises OSError when the folder cannot be read, UnknownAllowance for a path that is not there.
    """
    root = folder.resolve(strict=True)
    choice = choice or Choice()
    walk = _Walk(root=root, choice=choice, patterns=_patterns(root, choice))
    loaded = load(root)
    if not isinstance(loaded, Bundle):
        walk.findings.append(loaded.finding)
    _folders(walk)
    walk.files.sort(key=lambda file: file.path.encode("utf-8"))
    for path in choice.allow_secrets:
        if path not in {file.path for file in walk.files}:
            raise UnknownAllowance(path=path)
    for file in walk.files:
        _secrets(walk, file)
    _together(walk)
    metadata = loaded.metadata if isinstance(loaded, Bundle) else None
    _needed(walk, metadata)
    return Selection(
        folder=root,
        metadata=metadata,
        files=tuple(walk.files),
        findings=tuple(walk.findings),
        left_out=tuple(sorted(walk.left_out)),
    )


def is_junk(name: str) -> bool:
    """Whether files and folders of this name are left out of every bundle."""
    return name in _JUNK or name.endswith((".pyc", ".pyo", "~")) or name.startswith((".tmp-", ".#"))


def _patterns(root: Path, choice: Choice) -> tuple[ignore.Pattern, ...]:
    file = root / ignore.FILE_NAME
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    return ignore.patterns([*lines, *choice.exclude])


def _folders(walk: _Walk) -> None:
    pending = [(walk.root, "")]
    while pending:
        folder, prefix = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise
            walk.report("TB808", f"cannot read {shown(prefix[:-1])}: {cause(error)}")
            continue
        if not entries and prefix:
            walk.report("TB814", f"{shown(prefix[:-1])} is an empty folder, which a bundle cannot hold")
        for entry in entries:
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_junk(entry.name) or ignore.is_ignored(path, walk.patterns, folder=is_folder):
                walk.left_out.append(path + "/" if is_folder else path)
            elif is_folder:
                pending.append((folder / entry.name, path + "/"))
            elif path != LOCK_NAME:
                _entry(walk, entry, path)


def _entry(walk: _Walk, entry: os.DirEntry[str], path: str) -> None:
    if fault := path_fault(path):
        walk.report("TB809", f"{shown(path)} {fault}")
        return
    source: Path | None = Path(entry.path)
    here = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(here.st_mode):
        source = _target(walk, Path(entry.path), path)
        here = source.stat(follow_symlinks=False) if source else here
    if source is None:
        return
    if not stat.S_ISREG(here.st_mode):
        walk.report("TB807", f"{shown(path)} is {_kind(here.st_mode)}, not a file")
        return
    executable = bool(here.st_mode & 0o100)
    file = BundleFile(path=path, source=source, size=here.st_size, executable=executable, identity=_identity(here))
    walk.files.append(file)
    if executable:
        walk.report("TB812", f"{shown(path)} is executable, which the Hub does not keep")
    if is_reserved(path):
        found = finding("TB809", f"{shown(path)} cannot be stored on Windows")
        walk.findings.append(replace(found, severity=Severity.WARNING))
    if _is_weights(file) and not walk.choice.include_weights:
        hint = "--include-weights ships it; name the weights in 'hf_weights' to have them loaded from the Hub"
        walk.report("TB804", f"weights: {shown(path)} ({amount(file.size)})", hint=hint)


def _target(walk: _Walk, link: Path, path: str) -> Path | None:
    """The file that a link stands for, or None with a finding."""
    leads = shown(os.readlink(link))  # noqa: PTH115
    try:
        target = link.resolve(strict=True)
    except FileNotFoundError:
        walk.report("TB802", f"{shown(path)} -> {leads} is a broken link")
        return None
    except (OSError, RuntimeError) as error:
        what = "is a link to itself" if "loop" in str(error).lower() else "cannot be followed"
        walk.report("TB802", f"{shown(path)} -> {leads} {what}")
        return None
    inside = target.is_relative_to(walk.root)
    if target.is_dir():
        what = "is a link to a folder" if inside else "leaves the bundle, to a folder"
        walk.report("TB802", f"{shown(path)} -> {leads} {what}", hint="put a copy of the folder in its place")
    elif inside:
        walk.report("TB801", f"{shown(path)} -> {leads} is a link; a copy is shipped")
        return target
    elif walk.choice.dereference:
        return target
    else:
        hint = "--dereference ships a copy of the file"
        walk.report("TB802", f"{shown(path)} -> {leads} leaves the bundle", hint=hint)
    return None


def _secrets(walk: _Walk, file: BundleFile) -> None:
    if file.path in walk.choice.allow_secrets:
        return
    own = _own_path(walk, file)
    if named_like_a_secret(file.path) or named_like_a_secret(own):
        walk.report("TB805", f"{shown(file.path)} looks like a secret", hint=_allowing(file))
        return
    try:
        with file.open() as opened:
            data = opened.read(file.size) if file.size <= MAX_SCANNED else b""
    except PermissionError as error:
        walk.report("TB808", f"cannot read {shown(file.path)}: {cause(error)}")
        return
    for line, kind in secrets_in(data):
        found = finding("TB806", f"looks like {kind}", hint=_allowing(file))
        walk.findings.append(replace(found, file=file.path, line=line))


def _allowing(file: BundleFile) -> str:
    return f"if it may be published: --allow-secret {shown(file.path, 2048)}"


def _own_path(walk: _Walk, file: BundleFile) -> str:
    """Where the bytes of a file are: in the bundle, where it is no link out of it."""
    if str(file.source) == f"{walk.root}/{file.path}":
        return file.path
    inside = file.source.is_relative_to(walk.root)
    return file.source.relative_to(walk.root).as_posix() if inside else file.source.as_posix()


def _together(walk: _Walk) -> None:
    """What no file says alone: collisions, number and size."""
    seen: dict[str, str] = {}
    for path in _with_folders([*(file.path for file in walk.files), LOCK_NAME]):
        other = seen.setdefault(folded(path), path)
        if other != path:
            walk.report("TB809", f"{shown(other)} and {shown(path)} are the same name on some systems")
    if len(walk.files) > MAX_FILES:
        walk.report("TB815", f"{len(walk.files)} files; the limit is {MAX_FILES}")
    size, limit = sum(file.size for file in walk.files), walk.choice.max_size
    if size > limit:
        walk.report("TB815", f"{amount(size)}; the limit is {amount(limit)}", hint="--max-size raises it")


def _with_folders(paths: Iterable[str]) -> Iterator[str]:
    """The paths and every folder on the way to them, each once."""
    folders: set[str] = set()
    for path in paths:
        place = path
        while "/" in place and (place := place.rpartition("/")[0]) not in folders:
            folders.add(place)
            yield place
        yield path


def _needed(walk: _Walk, metadata: Metadata | None) -> None:
    """The metadata and the adapter's modules must be shipped where the folder has them."""
    parts = metadata.module.split(".") if metadata else []
    inits = ["/".join([*parts[:depth], "__init__.py"]) for depth in range(1, len(parts) + 1)]
    needed = [FILE_NAME, *inits, *(["/".join(parts) + ".py"] if parts else [])]
    for path in needed:
        out = any(path == left or (left.endswith("/") and path.startswith(left)) for left in walk.left_out)
        if out and os.path.lexists(walk.root / path):
            hint = f"a pattern of {ignore.FILE_NAME} or --exclude matches it"
            walk.report("TB813", f"{shown(path)} is left out, and the bundle needs it", hint=hint)


def _is_weights(file: BundleFile) -> bool:
    names = (file.path.lower(), file.source.name.lower())
    return any(name.endswith(_WEIGHTS) or (name.endswith(".bin") and file.size >= _LARGE_BIN) for name in names)


def _identity(here: os.stat_result) -> tuple[int, ...]:
    return (here.st_dev, here.st_ino, here.st_size, here.st_mtime_ns, here.st_ctime_ns)


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a folder"))
    return next((name for test, name in kinds if test(mode)), "a device")
