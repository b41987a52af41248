"""Puts a complete folder in its place in one step: whoever reads meanwhile sees the old one or the new one.

The new folder is filled inside a hidden sibling of its place, two levels down, so that no reader of
bundle folders takes it for one. A lock tells a running installation from what a killed one left.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import shown
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DestinationExists", "install", "remove", "staging", "tidy"]

_PREFIX = ".tmp-tt-bundle-"
_OLD = "old"
_AT_FDCWD, _NOREPLACE, _EXCHANGE = -100, 1, 2
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


class DestinationExists(TTError):
    """{name} exists; use --force to replace it"""

    exit_code = 4


@contextmanager
def staging(destination: Path) -> Iterator[Path]:
    """An empty folder to fill and then ``install`` as ``destination``; what is left of it is removed at the end.

    On the file system of ``destination``, whose parent folder is made. Tidies what killed runs left there.
    """
    parent = destination.parent
    made = not parent.exists()
    hidden, held = parent / f"{_PREFIX}{os.urandom(8).hex()}", -1
    try:  # from before the folder is made: an interruption may come at any moment
        parent.mkdir(parents=True, exist_ok=True)
        held = _open_hidden(hidden)
        new = hidden / "new"
        new.mkdir()
        new.chmod(0o755)
        yield new
    finally:
        try:
            _restore(hidden)
            _delete(hidden)
            if made:
                with suppress(OSError):  # something is in it
                    parent.rmdir()
        finally:
            if held >= 0:
                os.close(held)


def install(staged: Path, destination: Path, *, force: bool) -> None:
    """Give ``staged``, which must be on the same file system, the name ``destination``.

    With ``force`` an existing folder or link of that name is replaced, and deleted once the new one is in.
    """
    if not force:
        _rename_new(staged, destination)
        return
    for _ in range(16):  # until no other process makes or removes it in between
        with suppress(DestinationExists):
            _rename_new(staged, destination)
            return
        with suppress(FileNotFoundError):
            _replace(staged, destination)
            return
    raise DestinationExists(name=shown(destination.name))


def remove(folder: Path) -> None:
    """Delete a bundle: it is out of every reader's sight before the first file goes. A link is unlinked alone."""
    if folder.is_symlink():
        folder.unlink()
        return
    with staging(folder) as new:
        _renameat2(folder, new / folder.name, _NOREPLACE)


def tidy(parent: Path) -> None:
    """Remove what killed runs left in ``parent``, and put back an old folder that one had moved away."""
    with _locked(parent):
        _tidy(parent)


def _tidy(parent: Path) -> None:
    for hidden in sorted(parent.glob(_PREFIX + "*")):
        with suppress(OSError):
            held = os.open(hidden, _FOLDER | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _restore(hidden)
                _delete(hidden)
            finally:
                os.close(held)


def _open_hidden(hidden: Path) -> int:
    """Make a hidden folder, and give the descriptor whose lock says that a process still works in it."""
    with _locked(hidden.parent):
        _tidy(hidden.parent)
        hidden.mkdir(mode=0o700)
        held = os.open(hidden, _FOLDER)
        with suppress(OSError):  # where there are no locks, nothing is tidied either
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held


@contextmanager
def _locked(parent: Path) -> Iterator[None]:
    """One process at a time makes or tidies hidden folders, so that none is taken for abandoned."""
    held = os.open(parent, _FOLDER)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _rename_new(staged: Path, destination: Path) -> None:
    try:
        _renameat2(staged, destination, _NOREPLACE)
    except FileExistsError:
        raise DestinationExists(name=shown(destination.name)) from None


def _replace(staged: Path, destination: Path) -> None:
    try:
        _renameat2(staged, destination, _EXCHANGE)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        _replace_in_two(staged, destination)
    else:
        _delete(staged)  # which the old one is called now


def _replace_in_two(staged: Path, destination: Path) -> None:
    """For file systems that cannot exchange two names: for a moment there is neither."""
    with staging(destination) as new:
        old = new.parent / _OLD
        old.mkdir()
        destination.rename(old / destination.name)
        staged.rename(destination)


def _restore(hidden: Path) -> None:
    """Back in its place with an old folder that nothing has replaced."""
    with suppress(FileNotFoundError):
        for old in (hidden / _OLD).iterdir():
            with suppress(FileExistsError):
                _renameat2(old, hidden.parent / old.name, _NOREPLACE)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """Rename without replacing anything, or exchange; one step where the system can."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        done = call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
        number = ctypes.get_errno()
        if done == 0:
            return
        if number not in _CANNOT:
            raise OSError(number, os.strerror(number), str(target))
    if flags == _EXCHANGE:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(target))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)


def _delete(path: Path) -> None:
    """Delete a folder, though its folders may not be writable, or a link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        with suppress(OSError):
            os.chmod(folder, 0o700)  # noqa: PTH101
    shutil.rmtree(path)
