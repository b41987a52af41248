"""``python -m tools.bench.child DESCRIPTOR SETTINGS``: a process with an engine that measures what it is asked to.

Requests come on the standard input, a JSON object a line; answers go to the descriptor likewise. The first answer is
given when the engine has started; it ends when the input does.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, TextIO

from tools.bench.settings import Settings


def main(descriptor: int, settings: Settings) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8") as answers:
        try:
            _serve(answers, settings)
        except Exception:  # noqa: BLE001 - whatever it is, the other side says it
            _tell(answers, {"failed": traceback.format_exc()})
    os._exit(0)  # taking the loaded libraries apart takes seconds


def _serve(answers: TextIO, settings: Settings) -> None:
    from tools.bench.engine import Engine
    from tools.bench.measure import answer

    engine = Engine(settings)
    try:
        _tell(answers, {"ready": True})
        for line in sys.stdin:
            asked = json.loads(line)
            _tell(answers, answer(engine, asked.pop("measure"), asked))
    finally:
        engine.shutdown()


def _tell(answers: TextIO, what: dict[str, Any]) -> None:
    print(json.dumps(what), file=answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Settings(**json.loads(sys.argv[2])))
