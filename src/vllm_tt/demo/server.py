"""A `vllm serve` child process: started on a free local port, waited for, and never left behind."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt._data import data_path
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

__all__ = ["HOST", "Launch", "Server", "ServerFailed", "free_port"]

HOST = "127.0.0.1"

_DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys;"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""A first life of the child: the kernel ends it when its parent is killed, whatever it becomes."""

_UNWANTED = (
    "HF_MODEL",
    "TT_VISIBLE_DEVICES",
    "TT_MODEL_CLASS_OVERRIDES",
    "VLLM_PLUGINS",
    "VLLM_PORT",
    "VLLM_WORKER_MULTIPROC_METHOD",
)
"""Variables of the user's own servers that would change what this one serves, or how: the last one
is also left behind by whatever imports vLLM in this process. TT_ENGINE_START chooses instead.
"""

_SHARED_CORES = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Unless the user says otherwise. Threads that spin at barriers stall each other for whole time slices
when engine, API server and clients share the cores: a step then takes 5 to 20 times as long.
"""

_LOG_PREFIX = re.compile(r"^(\(.*?\) *)?[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^]]*\] *")


class ServerFailed(TTError):
    """The server {fault} after {seconds:.0f} s. The end of its log, {log}:{tail}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What to serve, and how."""

    model: str
    """A checkpoint folder or Hub id."""
    log: Path
    mesh: str = "N300"
    """The machine to emulate."""
    bundles: Path | None = None
    """EXTRA_MODELS_DIR; the shipped bundles by default."""
    port: int = 0
    """0 takes a free one."""
    arguments: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of the process's own."""
    outlive: bool = False
    """The server goes on when this process ends."""

    def command(self, port: int) -> list[str]:
        serve = ["-m", "vllm.entrypoints.cli.main", "serve", self.model, "--host", HOST, "--port", str(port)]
        first = [] if self.outlive else ["-c", _DIE_WITH_PARENT]
        return [sys.executable, *first, *serve, *self.arguments]

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        return (
            _SHARED_CORES
            | inherited
            | {
                "TT_EMULATE": self.mesh,
                "MESH_DEVICE": self.mesh,
                "EXTRA_MODELS_DIR": str(self.bundles or data_path("bundles")),
                "TT_VLLM_BUILTIN_MODELS": "0",
                "VLLM_LOGGING_LEVEL": "INFO",
                "VLLM_NO_USAGE_STATS": "1",
                "PYTHONUNBUFFERED": "1",
                **self.environ,
            }
        )


class Server:
    """A running server and its process group; use it as a context manager, or call `stop`."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.port = launch.port or free_port()
        self.started = time.monotonic()
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        with launch.log.open("wb") as log:
            self.process = subprocess.Popen(
                launch.command(self.port),
                env=launch.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_healthy(self, *, timeout: float = 600.0, progress: Callable[[float, str], None] | None = None) -> float:
        """Seconds from the start to healthy; raises ServerFailed, with the process gone, if that does not come.

        ``progress`` is called about twice a second with the seconds so far and the last message of the log.
        """
        while True:
            seconds = time.monotonic() - self.started
            if self.healthy():
                return seconds
            if (code := self.process.poll()) is not None:
                raise self._failed(_ending(code), seconds)
            if progress is not None:
                progress(seconds, _message(self.log_tail(1)))
            if seconds > timeout:
                raise self._failed("was not healthy", seconds)
            time.sleep(0.5 if progress is not None else 0.2)

    def healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self, *, grace: float = 20.0) -> int:
        """End the server and everything it started; its exit code. Asks first, kills after ``grace`` seconds."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
        finally:
            self._end_group()
        return self.process.returncode

    def _end_group(self) -> None:
        """Kill what is left: it did not listen, or has lost its parent."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.process.wait()
            time.sleep(0.02)

    def log_tail(self, lines: int) -> str:
        """The last lines of the log that are not blank."""
        with self.launch.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 400 * max(lines, 10)))
            text = log.read().decode(errors="replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def _failed(self, fault: str, seconds: float) -> ServerFailed:
        self.stop()
        return ServerFailed(fault=fault, seconds=seconds, log=self.launch.log, tail="\n" + self.log_tail(30))


def free_port() -> int:
    """A port of the local host that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _message(line: str) -> str:
    """A log line without its process, level, time and place."""
    return _LOG_PREFIX.sub("", re.sub(r"\x1b\[[0-9;]*m", "", line)).strip()
