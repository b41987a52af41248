"""Folders of bundles to scan."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

LLAMA = {"arch": "LlamaForCausalLM", "main_class": "adapter:Model"}


@pytest.fixture(autouse=True)
def no_loaded_bundle(monkeypatch):
    """A bundle that was loaded in this process has its folder on the path: here it would shadow others."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "vllm_metadata.json").exists()])


@pytest.fixture
def add(tmp_path):
    """Makes a bundle folder: ``add("name", arch=...)``, or any file with ``add("name", text="...")``."""

    def make(folder, *, text=None, file="vllm_metadata.json", **fields):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(json.dumps({**LLAMA, **fields}) if text is None else text)
        return place

    return make


@pytest.fixture
def unprivileged(tmp_path):
    """A context without root's right to read everything."""

    @contextlib.contextmanager
    def context():
        if os.geteuid() != 0:
            yield
            return
        for folder in (tmp_path, *tmp_path.parents):
            if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
                folder.chmod(0o755)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return context
