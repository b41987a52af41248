"""The process that runs an adapter: a request comes in as a file, messages go out as lines of JSON."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt.conformance.request import Request
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["main", "perform"]


def main() -> None:
    """``child REQUEST_FILE DESCRIPTOR CRASH_FILE``: perform the check, with messages on the descriptor."""
    request_file, descriptor, crash_file = sys.argv[-3:]
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # ends with its parent, the mesh closed
    out = os.fdopen(int(descriptor), "w", encoding="utf-8")

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message, default=str) + "\n")
        out.flush()

    with Path(crash_file).open("w") as crash:
        faulthandler.enable(crash)
        try:
            perform(Request.from_dict(json.loads(Path(request_file).read_text("utf-8"))), send)
        except TTError as error:
            send({"error": str(error), "misuse": isinstance(error, ConfigError)})
        send({"done": True})


def perform(request: Request, send: Callable[[dict[str, Any]], None]) -> None:
    """Run the check; each row is sent when it is done. Raises what is not the adapter's fault."""
    from vllm_tt import emulation
    from vllm_tt.config import TTConfig
    from vllm_tt.conformance.faults import described
    from vllm_tt.conformance.loading import load_subject, read_config
    from vllm_tt.conformance.memory import DRAM
    from vllm_tt.conformance.operations import watch
    from vllm_tt.conformance.report import Row
    from vllm_tt.conformance.sequence import Run

    emulation.prepare()
    config = read_config(request.model)
    with _mesh(TTConfig()) as (ttnn, mesh), watch(ttnn) as watched:
        try:
            subject = load_subject(request, config, mesh.grid.chips)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - an adapter that does not import is a finding
            send({"row": Row(name="load", status="fail", detail=described(error, Path(request.folder))).to_dict()})
            return
        send({"facts": {"adapter": subject.adapter_class.__name__, "dtype": str(subject.dtype).removeprefix("torch.")}})
        run = Run(request, subject, mesh.device, watched, dram := DRAM(ttnn, mesh.device))
        for message in run.rows():
            send({"doing": message} if isinstance(message, str) else {"row": message.to_dict()})
        send({"facts": {"operations": dict(watched.calls), "dram": {"total": dram.total, **dram.stages}}})


@contextmanager
def _mesh(config: Any) -> Iterator[tuple[Any, Any]]:
    from vllm_tt.worker.device import load_ttnn, open_mesh

    mesh = open_mesh(config, tracing=True)
    try:
        yield load_ttnn(), mesh
    finally:
        mesh.close()
