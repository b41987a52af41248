"""Runs the cases of a JSON file, each in a fork of this process, and prints their outcomes as JSON."""

import importlib
import json
import logging
import os
import sys
import tempfile
import traceback
from multiprocessing.util import _exit_function
from pathlib import Path

from vllm_tt import emulation


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def run(code: str, environ: dict[str, str]) -> dict[str, object]:
    seen = Lines()
    logging.getLogger("vllm.tt").addHandler(seen)
    logging.getLogger("vllm.tt").setLevel(logging.INFO)
    os.environ.update(environ)
    names: dict[str, object] = {"result": None}
    error = None
    try:
        emulation.prepare()
        exec(code, names)
    except Exception as fault:  # noqa: BLE001 - it is the outcome
        error = f"{type(fault).__name__}: {fault}"
        if not type(fault).__module__.startswith("vllm_tt"):
            error += "\n" + traceback.format_exc()
    return {"result": names["result"], "log": seen.lines, "error": error}


def main() -> None:
    emulation.prepare()
    importlib.import_module("ttnn")
    cases = json.loads(Path(sys.argv[1]).read_text())
    outcomes = {}
    for name, (code, environ) in cases.items():
        with tempfile.TemporaryFile("w+") as report:
            child = os.fork()
            if child == 0:
                outcome = run(code, environ)
                _exit_function()
                json.dump(outcome, report)
                report.flush()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            report.seek(0)
            text = report.read()
        outcome = json.loads(text) if text else {"result": None, "log": [], "error": "died"}
        outcomes[name] = outcome | {"status": os.waitstatus_to_exitcode(status)}
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
