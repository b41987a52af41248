"""Bundles with code, loaded without leaving a trace in the interpreter."""

import json
import logging
import sys
import textwrap

import pytest

from vllm_tt.bundle import Bundle
from vllm_tt.bundle.reading import load
from vllm_tt.models import builtin


@pytest.fixture
def bundle(tmp_path):
    """Makes a bundle from source texts: ``bundle("name", adapter="class Model: ...")`` -> Bundle."""

    def make(name, *, arch="LlamaForCausalLM", main_class="adapter:Model", files=None, adapter=None, **metadata):
        folder = tmp_path / "bundles" / name
        for path, text in {**(files or {}), **({"adapter.py": adapter} if adapter is not None else {})}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(textwrap.dedent(text))
        folder.mkdir(parents=True, exist_ok=True)
        fields = {"arch": arch, "main_class": main_class, **metadata}
        (folder / "vllm_metadata.json").write_text(json.dumps(fields))
        found = load(folder)
        assert isinstance(found, Bundle)
        return found

    return make


@pytest.fixture
def log():
    """The lines that the package logs, whatever vLLM has done to its loggers."""
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(f"{record.levelname} {record.getMessage()}")

    logger, handler = logging.getLogger("vllm.tt"), Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def nothing_served_yet(monkeypatch):
    """Every feature of built-in models is one that cannot be served."""
    monkeypatch.setattr(builtin, "NOT_YET", frozenset(builtin.Feature))


@pytest.fixture(autouse=True)
def interpreter_left_as_found(tmp_path):
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("vllm_tt_bundles", "models") or str(getattr(module, "__file__", "")).startswith(
            str(tmp_path)
        ):
            del sys.modules[name]
