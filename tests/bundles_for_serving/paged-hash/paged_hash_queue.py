"""When the device computes: calls run in the order they were submitted, each at a time that the device picks."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from paged_hash_checks import require

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Handle", "Queue"]


class Handle:
    """A decode that was submitted and is to be read back."""

    def __init__(self, result: Future[Any], *, is_tokens: bool) -> None:
        self.result = result
        self.is_tokens = is_tokens
        self.reading = False
        self.taken = False


class Queue:
    """Runs jobs at submission, when a result is asked for (``read``), or in a thread of its own.

    At most ``depth`` submitted jobs may be unread.
    """

    def __init__(self, compute: str, depth: int, record: dict[str, Any]) -> None:
        require(compute in ("submit", "read", "thread"), "PAGED_HASH_COMPUTE={compute}", compute=compute)
        self._compute = compute
        self._depth = depth
        self._record = record
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._running = threading.RLock()
        self._books = threading.Lock()
        # A single thread keeps the order; it ends with the queue.
        self._pool = ThreadPoolExecutor(1) if compute == "thread" else None
        self._pause = random.Random(0)

    def run(self, job: Callable[[], Any]) -> Any:
        """The result of ``job``, after all that was submitted before it."""
        return self._resolved(self._enqueue(job))

    def submit(self, job: Callable[[], Any], *, is_tokens: bool) -> Handle:
        """Queue ``job``; its result is read later."""
        with self._books:
            self._record["unread"] += 1
            self._record["most_unread"] = max(self._record["most_unread"], self._record["unread"])
            require(
                self._record["unread"] <= self._depth,
                "{unread} decodes are submitted and not read; at most {depth} may be",
                unread=self._record["unread"],
                depth=self._depth,
            )
        return Handle(self._enqueue(job), is_tokens=is_tokens)

    def start_reading(self, handle: Handle) -> None:
        with self._books:
            require(not handle.reading, "a readback was started twice")
            handle.reading = True

    def take(self, handle: Handle, *, is_tokens: bool) -> Any:
        """The result behind ``handle``, whose readback was started."""
        with self._books:
            require(handle.reading, "a decode is processed whose readback was not started")
            require(not handle.taken, "a decode was read twice")
            require(is_tokens is handle.is_tokens, "is_tokens={got} for the other kind of decode", got=is_tokens)
            handle.taken = True
            self._record["unread"] -= 1
        return self._resolved(handle.result)

    def _enqueue(self, job: Callable[[], Any]) -> Future[Any]:
        if self._pool is not None:
            pause = self._pause.choice([0.0, 0.0, 0.002 * self._pause.random()])
            return self._pool.submit(lambda: (time.sleep(pause), job())[1])
        result: Future[Any] = Future()
        self._jobs.append((job, result))
        if self._compute == "submit":
            self._run_queued()
        return result

    def _resolved(self, result: Future[Any]) -> Any:
        if self._pool is None:
            self._run_queued()
        return result.result()

    def _run_queued(self) -> None:
        with self._running:
            while self._jobs:
                job, result = self._jobs.popleft()
                try:
                    result.set_result(job())
                except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
                    result.set_exception(error)
