"""The oracle's bundle and checkpoint, for engines in this process; a family's reference bundle in one of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import write_checkpoint

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")


@pytest.fixture(scope="session")
def run_family(tmp_path_factory):
    """``run_family(name)``: what `family_runs` finds, of a family in `tools.tiny_models`."""

    def run(name):
        folder = tmp_path_factory.mktemp(name)
        environment = os.environ | {
            "EXTRA_MODELS_DIR": str(TESTS.parent / "bundles"),
            "PYTHONPATH": os.pathsep.join([str(TESTS / "support"), str(TESTS.parent)]),
            "OMP_NUM_THREADS": "1",
        }
        script = [sys.executable, TESTS / "support" / "family_runs.py", folder, name]
        done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((folder / "results.json").read_text())

    return run
