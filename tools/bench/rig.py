"""Processes with an engine, started together, asked to measure in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bench.settings import Timing

from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tools.bench.settings import Arriving, Settings, Steady

__all__ = ["HERE", "Checkout", "NotACheckout", "Rig", "RigFailed", "rigs"]

ROOT = Path(__file__).parents[2]
BUNDLES = Path(__file__).parent / "bundles"


class NotACheckout(ConfigError):
    """{folder} is no checkout of the project: it has no src/vllm_tt."""


class RigFailed(TTError):
    """The engine of {checkout} ({settings}) {fault}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A copy of the project that is measured; the tool and the model are always this one's."""

    name: str
    folder: Path

    @classmethod
    def other(cls, folder: Path) -> Checkout:
        if not (folder / "src" / "vllm_tt").is_dir():
            raise NotACheckout(folder=folder)
        return cls(name=folder.resolve().name, folder=folder.resolve())

    def environment(self) -> dict[str, str]:
        """Of a process that serves the no-op model with the checkout's package; the user's own servers do not show."""
        unwanted = ("TT_MODEL_CLASS_OVERRIDES", "TT_VISIBLE_DEVICES", "MESH_DEVICE", "HF_MODEL", "VLLM_PLUGINS")
        inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
        # Threads that spin at barriers stall each other for whole time slices when other work shares the cores.
        quiet = {"OMP_WAIT_POLICY": "PASSIVE", "VLLM_LOGGING_LEVEL": "WARNING"}
        forced = {
            "PYTHONPATH": str(self.folder / "src"),
            "EXTRA_MODELS_DIR": str(BUNDLES),
            "TT_VLLM_BUILTIN_MODELS": "0",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
        return quiet | inherited | forced


HERE = Checkout(name="here", folder=ROOT)


class Rig:
    """A process with one engine."""

    def __init__(self, checkout: Checkout, settings: Settings, log: Path) -> None:
        self._checkout, self._settings, self._log = checkout, settings, log
        answers, theirs = os.pipe()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.bench.child", str(theirs), json.dumps(asdict(settings))],
                cwd=ROOT,
                env=checkout.environment() | settings.environment(),
                pass_fds=[theirs],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        os.close(theirs)
        self._answers = os.fdopen(answers, encoding="utf-8")

    def wait_ready(self) -> None:
        self._answer()

    def steady(self, asked: Steady) -> Timing:
        return Timing(**self._ask("steady", asdict(asked)))

    def churn(self, asked: Arriving) -> Timing:
        return Timing(**self._ask("churn", asdict(asked)))

    def reading(self, times: int) -> Timing:
        return Timing(**self._ask("reading", {"times": times}))

    def profile(self, asked: Steady) -> dict[str, Any]:
        return self._ask("profile", asdict(asked))

    def close(self) -> None:
        """Let the engine end, or end it."""
        self._answers.close()
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, measure: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        with suppress(BrokenPipeError):  # it has ended: there is no answer, and the log says why
            print(json.dumps({"measure": measure, **asked}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            lines = self._log.read_text(errors="replace").splitlines()
            raise self._failed(f"ended with exit code {self._process.wait()}; its log ends with", lines[-25:])
        answer = json.loads(line)
        if "failed" in answer:
            raise self._failed("failed:", answer["failed"].splitlines())
        return answer

    def _failed(self, fault: str, lines: Sequence[str]) -> RigFailed:
        text = "\n".join([fault, *lines])
        return RigFailed(checkout=self._checkout.name, settings=self._settings, fault=text)


@contextmanager
def rigs(engines: Iterable[tuple[Checkout, Settings]]) -> Iterator[dict[tuple[Checkout, Settings], Rig]]:
    """The engines, all of them ready. They idle while they are not asked."""
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-bench-")))
        started: dict[tuple[Checkout, Settings], Rig] = {}
        for number, (checkout, settings) in enumerate(engines):
            started[checkout, settings] = rig = Rig(checkout, settings, logs / f"{number}.log")
            stack.callback(rig.close)
        for rig in started.values():
            rig.wait_ready()
        yield started
