"""Fetches files of one commit, each checked against its digest; what is complete survives a failure.

The files gather in a folder of the cache that is named after the commit, so that the next try goes on
and nothing of another commit is ever taken for them. One process at a time works in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import shutil
import threading
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.bundle.hub.errors import Damaged
from vllm_tt.bundle.hub.repo import folder_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from vllm_tt.bundle.hub.client import Client, Progress, RemoteFile, Snapshot

__all__ = ["Quiet", "gathering", "gather", "read"]

_AT_ONCE = 8


class Quiet:
    """Progress that nobody looks at."""

    def advance(self, size: int) -> None:
        pass


@contextlib.contextmanager
def gathering(snapshot: Snapshot, environ: Mapping[str, str]) -> Iterator[Path]:
    """The folder for the commit's files; deleted at the end, and kept when an error ends it."""
    base = env.CACHE_DIR.get(environ).expanduser() / "hub" / folder_name(snapshot.repo)
    base.mkdir(parents=True, exist_ok=True)
    held = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # where there are no locks, there is one process at a time
            fcntl.flock(held, fcntl.LOCK_EX)
        for other in base.iterdir():
            if other.name != snapshot.commit:  # an older try, of a commit that is not wanted any more
                shutil.rmtree(other, ignore_errors=True)
        folder = base / snapshot.commit
        folder.mkdir(exist_ok=True)
        yield folder
        shutil.rmtree(folder)
    finally:
        os.close(held)


def gather(client: Client, snapshot: Snapshot, files: Iterable[RemoteFile], folder: Path, progress: Progress) -> None:
    """Fetch the files below ``folder``. Raises HubError when one cannot be fetched whole, after those under way."""
    wanted: queue.SimpleQueue[RemoteFile] = queue.SimpleQueue()
    results: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    ordered = sorted(files, key=lambda file: -file.size)  # the longest first
    for file in ordered:
        wanted.put(file)
    failed = threading.Event()

    def work() -> None:
        while not failed.is_set():
            try:
                file = wanted.get_nowait()
            except queue.Empty:
                return
            try:
                _fetch(client, snapshot, file, folder, progress)
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits
                failed.set()
                results.put(error)
            else:
                results.put(None)

    # Not a pool of the standard library: at the end of the process it waits for threads that a silent server holds.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(ordered)))]
    for thread in threads:
        thread.start()
    for _ in ordered:
        if error := results.get():
            for thread in threads:
                thread.join()  # what is under way is kept
            raise error


def read(client: Client, snapshot: Snapshot, path: str, folder: Path, limit: int) -> bytes | None:
    """The contents of one small file; None when the commit has none of the path, or a larger one."""
    file = snapshot.files.get(path)
    if file is None or file.size > limit:
        return None
    _fetch(client, snapshot, file, folder, Quiet())
    return (folder / path).read_bytes()


def _fetch(client: Client, snapshot: Snapshot, file: RemoteFile, folder: Path, progress: Progress) -> None:
    place = client.fetch(snapshot, file, folder, progress)
    if difference := file.difference(place):
        place.unlink()
        raise Damaged(path=file.path, repo=snapshot.repo, cause=difference)
