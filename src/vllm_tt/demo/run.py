"""The demo from end to end: checkpoint, server on an emulated mesh, one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.demo.ask import Answer, ask, chat_request, curl
from vllm_tt.demo.checkpoint import MODEL_NAME, prepare
from vllm_tt.demo.server import Launch, Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Demo", "Report", "Watcher", "run"]

_SERVING = ("--served-model-name", MODEL_NAME, "--max-model-len", "2048", "--max-num-seqs", "8", "--block-size", "64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """What the user chose."""

    question: str
    mesh: str = "N300"
    max_tokens: int = 128
    port: int = 0
    keep: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """Who is told how it goes."""

    preparing: Callable[[int, int], None]
    """Steps done and their number, while the checkpoint is written."""
    starting: Callable[[float, str], None]
    """Seconds so far and the server's last message, while it starts."""
    healthy: Callable[[float], None]
    """Seconds from the start of the server to healthy."""
    text: Callable[[str], None]
    """Each piece of the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What came of it."""

    checkpoint: Path
    log: Path
    url: str
    pid: int
    healthy_seconds: float
    answer: Answer
    curl: str


def run(demo: Demo, watcher: Watcher) -> Report:
    """Serve the demo's model, ask the question, and stop unless ``demo.keep``.

    Whatever goes wrong, and when the user interrupts, the server is gone before the error comes out.
    """
    checkpoint = prepare(progress=watcher.preparing)
    launch = Launch(
        model=str(checkpoint),
        log=env.CACHE_DIR.get() / "logs" / "demo.log",
        mesh=demo.mesh,
        port=demo.port,
        arguments=_SERVING,
        environ={"HF_HUB_OFFLINE": "1"},
        outlive=demo.keep,
    )
    server = Server(launch)
    kept = False
    try:
        healthy = server.wait_healthy(progress=watcher.starting)
        watcher.healthy(healthy)
        request = chat_request(MODEL_NAME, demo.question, demo.max_tokens)
        answer = ask(server.url, request, on_text=watcher.text)
        kept = demo.keep
    finally:
        if not kept:
            server.stop()
    return Report(
        checkpoint=checkpoint,
        log=launch.log,
        url=server.url,
        pid=server.process.pid,
        healthy_seconds=healthy,
        answer=answer,
        curl=curl(server.url, request),
    )
