"""Prompts with images through vLLM's engine: the tokens are those of transformers, whatever happens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SURE = 1e-3
"""By how much the logit of each likeliest token must stand out: two float32 implementations differ by 1e-4 at most."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("images")
    environment = os.environ | {
        "EXTRA_MODELS_DIR": str(TESTS.parent / "bundles"),
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS / "support", TESTS.parent))),
        "OMP_NUM_THREADS": "1",
    }
    script = TESTS / "support" / "image_runs.py"
    done = subprocess.run(
        [sys.executable, script, folder], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "results.json").read_text())


def test_every_token_is_that_of_transformers(results):
    sure = {name: tokens for name, (tokens, margin) in results["expected"].items() if margin > SURE}
    assert len(sure) > 20
    assert len({tuple(tokens) for tokens in sure.values()}) == len(sure)
    runs = results["runs"]
    assert [(run, name) for run in runs for name in sure if runs[run]["tokens"][name] != sure[name]] == []


def test_every_configuration_did_what_its_name_says(results):
    runs = results["runs"]
    plain = runs["host"]
    assert not plain["cached"]
    for name, run in runs.items():
        assert ("preempted" in name) == bool(run["preempted"]), name
        assert name == "host" or len(run["cached"]) > 5, name
        if "chunks" in name and "lanes" not in name:
            assert run["phases"].count("P") > 2 * plain["phases"].count("P"), name


def test_an_image_that_fits_into_no_chunk_is_refused_at_once(results):
    for name, run in results["runs"].items():
        refused = run["refused"] or "with 0 embedding tokens"
        assert ("with 266 embedding tokens, which exceeds" in refused) == ("chunks" in name), name
