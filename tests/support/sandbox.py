"""Processes that use ttnn on emulated machines, in folders that show what they leave behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Case", "Outcome", "Sandbox", "runtime_shared_memory"]

RUNTIME_VARIABLES = ("TT_", "OMPI_", "MESH_DEVICE", "TMPDIR", "LOGURU_")
CASES = Path(__file__).with_name("cases_in_forks.py")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Code for a process of its own; what it assigns to ``result`` comes back."""

    code: str
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    result: object
    log: list[str]
    error: str | None
    status: int


@dataclass(frozen=True)
class Sandbox:
    """A home, a temporary, a working and a cache folder for processes."""

    path: Path
    cache: Path

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def temp(self) -> Path:
        return self.path / "tmp"

    @property
    def cwd(self) -> Path:
        return self.path / "cwd"

    def environ(self, **variables: str) -> dict[str, str]:
        """This process's environment without what steers the runtime, plus ``variables``."""
        for folder in (self.home, self.temp, self.cwd):
            folder.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(RUNTIME_VARIABLES)}
        ours = {"TT_VLLM_CACHE": str(self.cache), "TMPDIR": str(self.temp), "HOME": str(self.home)}
        return kept | ours | variables

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environ(**variables),
            cwd=self.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of ``python *arguments``."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def run_cases(self, cases: dict[str, Case]) -> dict[str, Outcome]:
        """Each case in its own fork of one process that has imported ttnn: one import for all."""
        plan = self.path / "cases.json"
        self.path.mkdir(parents=True, exist_ok=True)
        plan.write_text(json.dumps({name: [case.code, case.environ] for name, case in cases.items()}))
        status, out, err = self.run(str(CASES), str(plan), TT_EMULATE="N300")
        assert status == 0, err
        return {name: Outcome(**outcome) for name, outcome in json.loads(out.splitlines()[-1]).items()}

    def left_behind(self) -> list[str]:
        """Everything in the home, the temporary and the working folder."""
        tops = (self.home, self.temp, self.cwd)
        return sorted(str(path.relative_to(self.path)) for top in tops for path in top.rglob("*"))


def runtime_shared_memory() -> set[str]:
    """What the runtime and its MPI have in shared memory, of all processes on this host."""
    return {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(("tt_device_", "sm_segment."))}
