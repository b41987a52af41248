"""How a server ends: time for its engine to close the mesh, and a last line that says whether it did.

The engine is a process of its own. Left alone, vLLM kills it as soon as it has asked it to stop, and
ends with exit code 0 when it died. The two sides share a small file that says whether the mesh is open.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt import env
from vllm_tt.log import get_logger
from vllm_tt.platform.compat import is_further_front_end
from vllm_tt.platform.settled import keep, state_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["CLOSE_SECONDS", "MeshRecord", "allow_closing", "engine_record", "last_words", "watch"]

log = get_logger(__name__)

CLOSE_SECONDS = 30
"""How long an engine may take to close its mesh before vLLM kills it."""

EXIT_FAILED = 1
"""The exit code of a server whose engine failed or died."""

_AFTER_THE_CHILDREN = -1
"""Finalizers below zero run when multiprocessing has joined its processes. An exit handler would come before those
of a client that is still there when a script ends, and find the engine alive."""

_watched: list[MeshRecord] = []


@dataclass(frozen=True, slots=True)
class MeshRecord:
    """Whether an engine of the server with process id ``server`` has its mesh open: a file in the cache folder."""

    server: int
    rank: int = 0

    @property
    def path(self) -> Path:
        return env.CACHE_DIR.get() / "open-meshes" / f"{self.server}-{self.rank}.json"

    def opened(self) -> None:
        """Called in the engine's process, as is `closed`."""
        self._write(is_open=True, failure=None)

    def closed(self, failure: BaseException | None) -> None:
        """``failure``: what ended the engine; SystemExit, a request to stop, is none."""
        text = f"{type(failure).__name__}: {failure}" if isinstance(failure, Exception) else None
        self._write(is_open=False, failure=text)

    def take(self) -> dict[str, Any] | None:
        """What was last written, which is then forgotten; None when no engine got as far as a mesh."""
        try:
            text = self.path.read_text(encoding="utf-8")
            self.path.unlink()
            return dict(json.loads(text))
        except (OSError, ValueError):
            return None

    def _write(self, *, is_open: bool, failure: str | None) -> None:
        state = {"engine": os.getpid(), "open": is_open, "failure": failure}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(state), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            # Serving goes on without the last line.
            log.warning("cannot note in %s that the mesh is open or closed: %s", self.path, error)


def allow_closing(config: VllmConfig) -> None:
    """In the server's process: have vLLM wait for the engines to close their meshes, and watch that they do."""
    keep(config, server=os.getpid(), shutdown_timeout=config.shutdown_timeout)
    config.shutdown_timeout += CLOSE_SECONDS
    if not is_further_front_end(config):
        for rank in range(config.parallel_config.data_parallel_size):
            watch(MeshRecord(os.getpid(), rank))


def watch(record: MeshRecord) -> None:
    """Have `last_words` speak of ``record`` when this process ends."""
    if not _watched:
        Finalize(None, last_words, exitpriority=_AFTER_THE_CHILDREN)
        _mention_the_dead(record.path.parent)
    if record not in _watched:
        record.take()
        _watched.append(record)


def engine_record(config: VllmConfig) -> MeshRecord:
    """In the engine's process: the record to keep of its mesh.

    The engine itself waits for running requests only as long as --shutdown-timeout asked.
    """
    state = state_of(config)
    config.shutdown_timeout = state["shutdown_timeout"]
    return MeshRecord(state["server"], config.parallel_config.data_parallel_index)


def last_words() -> None:
    """At the exit of a server's process, after everything else: say how its engines and their meshes ended.

    An engine that failed ends the process with an exit code that says so.
    """
    several = len(_watched) > 1
    names = {record: f"Engine {record.rank}" if several else "The engine" for record in _watched}
    states = {name: state for record, name in names.items() if (state := record.take()) is not None}
    _watched.clear()
    # An engine in this very process has ended with it, and the process says how.
    states = {name: state for name, state in states.items() if state["engine"] != os.getpid()}
    bad = {name: state for name, state in states.items() if state["open"] or state["failure"]}
    if states and not bad:
        log.info("The server has ended and its %s closed", f"{len(states)} meshes are" if several else "mesh is")
    for name in [name for name in states if bad and name not in bad]:
        log.info("%s has closed its mesh", name)
    for name, state in bad.items():
        _speak_of(name, state)
    if bad:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_FAILED)


def _speak_of(name: str, state: dict[str, Any]) -> None:
    if state["open"]:
        log.error(
            "%s (process %d) died with its mesh open: the lines above say why; if they do not, it was "
            "killed. Should the devices not answer at the next start, reset them with tt-smi -r",
            name,
            state["engine"],
        )
    else:
        log.error("%s failed (%s); its mesh is closed", name, state["failure"])


def _mention_the_dead(folder: Path) -> None:
    """Speak of servers that did not live to speak for themselves."""
    for path in folder.glob("*.json"):
        server, _, rank = path.stem.partition("-")
        if server.isdigit() and rank.isdigit() and not Path("/proc", server).exists():
            state = MeshRecord(int(server), int(rank)).take()
            if state and state["open"] and not Path("/proc", str(state["engine"])).exists():
                log.warning(
                    "An earlier server (process %s) was killed with its mesh open. Should the devices not answer, "
                    "reset them with tt-smi -r",
                    server,
                )
