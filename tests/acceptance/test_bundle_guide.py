"""The steps of ``docs/bundles.md``, run in order as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import smollm2

GUIDE = Path(__file__).parents[2] / "docs" / "bundles.md"


@pytest.mark.timeout(900)
def test_every_step_runs(tmp_path):
    steps = re.findall(r"```sh\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    script = "\n".join(["set -e", *steps])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "EXTRA_MODELS"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    places = {"HOME": str(tmp_path), "PATH": path, "TT_VLLM_CACHE": str(smollm2.CACHE)}
    done = subprocess.run(
        ["bash", "-c", script],
        env=kept | places,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "PASSED: 20 passed, 0 failed, 1 skipped" in done.stdout
    assert "PASSED: 9 passed, 0 failed, 0 skipped" in done.stdout
    served = f"EXTRA_MODELS_DIR={tmp_path}/bundles vllm serve {smollm2.checkpoint()} --max-model-len 2048"
    assert served in done.stdout.splitlines()
    assert done.stdout.splitlines()[-2].split() == [
        "ok",
        "my-llama",
        "TTLlamaForCausalLM",
        "generator_vllm:LlamaForCausalLM",
    ]
