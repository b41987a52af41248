"""The layered oracle for tests: a checkpoint that names it, and what it must answer."""

import importlib.util
import json
import sys

from oracle import BUNDLES
from oracle import write_checkpoint as write_plain

LAYERS, WINDOW = 6, 50


def _load():
    if "layered_hash" not in sys.modules:
        path = BUNDLES / "paged-hash-layers" / "layered_hash.py"
        spec = importlib.util.spec_from_file_location("layered_hash", path)
        sys.modules["layered_hash"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["layered_hash"])
    return sys.modules["layered_hash"]


def expected_tokens(prompt, count):
    return _load().expected_tokens(prompt, count, layers=LAYERS, window=WINDOW)


def write_checkpoint(folder):
    write_plain(folder, layers=LAYERS)
    config = folder / "config.json"
    described = json.loads(config.read_text()) | {"architectures": ["PagedHashLayersForCausalLM"]}
    config.write_text(json.dumps(described))
    return folder
