"""Imports an adapter in a process of its own and brings back what its class shows, or why there is no class.

The process has no terminal, an empty working directory and a time limit; its output is captured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from vllm_tt.bundle.facts import AdapterFacts, Place
from vllm_tt.bundle.findings import Finding, Severity, finding, shown

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Imported", "imported_facts"]

_PROBE = "vllm_tt.models.probe"
_MAX_RESULT = 1 << 22
_TAIL = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The class's facts, or findings that say why there are none."""

    facts: AdapterFacts | None = None
    findings: tuple[Finding, ...] = ()


def imported_facts(folder: Path, main_class: str, seconds: float) -> Imported:
    """Import ``main_class`` of the bundle in ``folder``; the process is ended after ``seconds``."""
    arguments = [str(folder.absolute()), main_class]
    with (
        tempfile.TemporaryDirectory(prefix="tt-bundle-") as empty,
        tempfile.TemporaryFile() as results,
        tempfile.TemporaryFile() as output,
    ):
        code = _run(arguments, results.fileno(), output.fileno(), empty, seconds)
        results.seek(0)
        text = results.read(_MAX_RESULT)
        hint = _last_line(output)
    if code is None:
        return _failed("TB312", f"import did not finish in {seconds:g} s", hint)
    return _read(text, code, main_class, hint)


def _run(arguments: list[str], results: int, output: int, folder: str, seconds: float) -> int | None:
    """The probe's exit code, or None when it had to be ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", _PROBE, *arguments, str(results)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(results,),
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # The whole session: the bundle's code may have started processes of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(output: IO[bytes]) -> str:
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - _TAIL))
    lines = output.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"it last printed {shown(last, 200)}" if last else ""


def _read(text: bytes, code: int, main_class: str, hint: str) -> Imported:
    try:
        result: dict[str, Any] = json.loads(text)
    except ValueError:
        message = f"importing {main_class.partition(':')[0]!r} ended the process ({_ending(code)})"
        return _failed("TB312", message, hint)
    if (kind := result.get("fault")) is None:
        facts = AdapterFacts.from_dict(result["facts"], Place())
        return Imported(facts=facts)
    message = str(result["message"])
    if kind == "dependency":
        return _failed("TB310", f"not checked: importing needs {shown(message)}", "")
    if kind == "exit":
        return _failed("TB312", f"import ends the process: {message}", hint)
    found = finding(str(result.get("code", "TB310")), message).graded(Severity.ERROR)
    return Imported(findings=(found.at(str(result.get("file", "")), result.get("line")),))


def _failed(code: str, message: str, hint: str) -> Imported:
    return Imported(findings=(finding(code, message, hint=hint).at(""),))


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
