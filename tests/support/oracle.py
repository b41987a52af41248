"""The paged-hash oracle for tests: its pure functions, and where its bundle is served from."""

import importlib.util
import sys
from pathlib import Path

BUNDLES = Path(__file__).parents[1] / "bundles_for_serving"
"""EXTRA_MODELS_DIR of a server with the oracle."""


def _load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, BUNDLES / "paged-hash" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_model = _load("paged_hash")
EOS, RESERVED, VOCAB_SIZE = _model.EOS, _model.RESERVED, _model.VOCAB_SIZE
expected_tokens, write_checkpoint = _model.expected_tokens, _model.write_checkpoint
