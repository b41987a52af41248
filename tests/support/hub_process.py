"""Processes that ask a Hub of the test's own and cannot reach outside of this machine: this one, and others."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from only_loopback import guarded

__all__ = ["TOKEN", "confine", "environment", "run"]

TOKEN = "hf_" + "tokenfortests" * 3

_CODE = "import only_loopback; only_loopback.install(); from vllm_tt.cli import main; main(prog_name='tt-bundle')"


def confine(monkeypatch, home):
    """For this process and the length of a test."""
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    # Read by the client at import, which may have been long ago.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(home / "no-token"))
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    for name in [name for name in os.environ if "proxy" in name.lower()]:
        monkeypatch.delenv(name)


def environment(url, home, **more):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "TT_")) and "proxy" not in name.lower()
    }
    kept.pop("EXTRA_MODELS_DIR", None)
    return {
        **kept, "HF_ENDPOINT": url, "HF_TOKEN": TOKEN, "HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "HOME": str(home), "PYTHONPATH": str(Path(__file__).parent), **more,
    }  # fmt: skip


def run(arguments, env):
    """What the command printed and how it ended."""
    command = [sys.executable, "-c", _CODE, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
