"""A `vllm serve` that is watched while it starts: what it logs, and when it is healthy."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt.demo.server import HOST, free_port
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NotHealthy", "Start", "empty_cache", "import_seconds", "start_server"]

LIMIT = 300.0
"""Seconds after which a server that is not healthy is given up."""
POLL = 0.02
ONE_IMPORT = "import vllm.entrypoints.openai.api_server"


class NotHealthy(TTError):
    """The server {fault}. The end of its log:
    {tail}
    """


@dataclass(slots=True)
class Start:
    """One start of a server, in seconds from its beginning."""

    healthy: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What it logged by then, and when."""


def start_server(model: str, environment: Mapping[str, str], *, cache: str | None = None) -> Start:
    """Serve ``model`` until it is healthy, and end it; ``cache`` is a folder for vLLM's own caches."""
    port = free_port()
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", HOST, "--port", str(port)],
        env={**environment, "VLLM_LOGGING_LEVEL": "INFO", **({"VLLM_CACHE_ROOT": cache} if cache else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    start = Start()
    reader = threading.Thread(target=_read, args=(process, began, start), daemon=True)
    reader.start()
    try:
        while not _is_healthy(port):
            fault = _fault(process, time.monotonic() - began)
            if fault:
                raise NotHealthy(fault=fault, tail="\n".join(line for _, line in start.lines[-25:]))
            time.sleep(POLL)
        start.healthy = time.monotonic() - began
    finally:
        _end(process)
        reader.join()
    start.lines = [line for line in start.lines if line[0] <= start.healthy]
    return start


def import_seconds(environment: Mapping[str, str]) -> float:
    """Seconds of a process that imports vLLM's API server and does nothing else."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", ONE_IMPORT], env=environment, check=True, capture_output=True)
    return time.monotonic() - began


def empty_cache() -> tempfile.TemporaryDirectory[str]:
    """A folder without anything that vLLM has learnt of models."""
    return tempfile.TemporaryDirectory(prefix="tt-bench-cache-")


def _read(process: subprocess.Popen[str], began: float, start: Start) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        start.lines.append((time.monotonic() - began, line.rstrip()))


def _fault(process: subprocess.Popen[str], seconds: float) -> str | None:
    if (code := process.poll()) is not None:
        return f"ended with exit code {code} after {seconds:.0f} s"
    return f"was not healthy after {seconds:.0f} s" if seconds > LIMIT else None


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what did not listen
    process.wait()
