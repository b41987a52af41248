"""Checks an adapter in a process of its own, which may crash, hang or leave things loaded without harm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vllm_tt.conformance.report import Report, Row
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tt.conformance.request import Request

__all__ = ["CannotCheck", "CheckMisused", "check"]

_START = "import sys; sys.path = [p for p in sys.path if p]; from vllm_tt.conformance.child import main; main()"
"""Without the current folder on the path, where a folder called ttnn would hide the library."""


class CannotCheck(TTError):
    """{message}"""


class CheckMisused(ConfigError):
    """{message}"""


@dataclass(slots=True)
class _Heard:
    """What the process has said so far."""

    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    doing: str = "load"
    error: dict[str, Any] | None = None
    done: bool = False


def check(request: Request, on_row: Callable[[Row], None] = lambda _row: None) -> Report:
    """Run the check; ``on_row`` is called with each row as it comes.

    A process that ends by itself is a failed row. Raises CannotCheck or CheckMisused for what is not the
    adapter's doing. Whatever happens, the process is gone and its mesh closed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="tt-check-") as name:
        folder = Path(name)
        heard, code = _run(request, folder, on_row)
        if heard.error is not None:
            kind = CheckMisused if heard.error["misuse"] else CannotCheck
            raise kind(message=heard.error["error"])
        if not heard.done:
            row = _crashed(request, folder, heard.doing, code)
            heard.rows.append(row)
            on_row(row)
    return Report(rows=tuple(heard.rows), facts=heard.facts)


def _run(request: Request, folder: Path, on_row: Callable[[Row], None]) -> tuple[_Heard, int]:
    (folder / "request.json").write_text(json.dumps(request.to_dict()), encoding="utf-8")
    heard = _Heard()
    read_end, write_end = os.pipe()
    arguments = [str(folder / "request.json"), str(write_end), str(folder / "crash")]
    with (folder / "log").open("wb") as log, os.fdopen(read_end, encoding="utf-8") as messages:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                env=_environment(request),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end],
            )
        finally:
            os.close(write_end)
        try:
            _listen(messages, heard, on_row)
            return heard, process.wait()
        finally:
            _end(process)


def _listen(messages: IO[str], heard: _Heard, on_row: Callable[[Row], None]) -> None:
    for line in messages:
        message = json.loads(line)
        if row := message.get("row"):
            heard.rows.append(Row.from_dict(row))
            on_row(heard.rows[-1])
        heard.facts |= message.get("facts", {})
        heard.doing = message.get("doing", heard.doing)
        heard.error = message.get("error") and message
        heard.done = heard.done or "done" in message
        if heard.error:
            return


def _environment(request: Request) -> dict[str, str]:
    environ = dict(os.environ)
    if request.mesh:
        environ["MESH_DEVICE"] = request.mesh
    if not request.emulate:
        environ.pop("TT_EMULATE", None)
    elif request.mesh or not environ.get("TT_EMULATE"):
        environ["TT_EMULATE"] = request.mesh or "N300"
    return environ


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to close its mesh and end; after a while, end it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _crashed(request: Request, folder: Path, doing: str, code: int) -> Row:
    ending = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    frames = re.findall(
        r'File "(.+?)", line (\d+) in (\S+)', (folder / "crash").read_text() if (folder / "crash").exists() else ""
    )
    own = [(file, line) for file, line, _ in frames if Path(file).is_relative_to(request.folder)]
    log = (folder / "log").read_text(errors="replace").strip().splitlines()[-5:]
    place = f"{Path(own[0][0]).name}:{own[0][1]}" if own else ""
    said = "" if own or not log else "; it said last: " + " | ".join(log)
    return Row(name=doing, status="fail", detail=f"the process was {ending}{said}", place=place)
