"""The reference adapter through vLLM's engine, sampling on its device: each request's tokens are always the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DRAWS_ON_DEVICE = ("seeded", "seeded and narrowed", "seeded with logprobs", "seeded and penalised")
"""Alike wherever the device draws; the host has another source of noise."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama-host")
    environment = os.environ | {
        "EXTRA_MODELS_DIR": str(TESTS.parent / "bundles"),
        "PYTHONPATH": str(TESTS / "support"),
        "OMP_NUM_THREADS": "1",
    }
    script = TESTS / "support" / "llama_host_runs.py"
    done = subprocess.run(
        [sys.executable, script, folder], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "results.json").read_text())


def differing(runs, names, of):
    """The runs and requests whose tokens are not those of the first of ``names``."""
    first = runs[names[0]]["tokens"]
    return [(name, request) for name in names for request in of if runs[name]["tokens"][request] != first[request]]


def test_rows_that_do_not_draw_have_the_hosts_tokens(runs):
    names = list(runs)
    still = [name for name in runs[names[0]]["tokens"] if not name.startswith(("seeded", "drawn"))]
    assert len(still) == 7
    assert differing(runs, names, still) == []
    assert all(len(tokens) == 40 for run in runs.values() for tokens in run["tokens"].values())


def test_seeded_tokens_do_not_depend_on_slots_order_chunks_or_preemption(runs):
    on_device = [name for name in runs if name != "host"]
    assert len(on_device) == 5
    assert differing(runs, on_device, DRAWS_ON_DEVICE) == []
    tokens = runs["device"]["tokens"]
    assert len({tuple(tokens[name]) for name in DRAWS_ON_DEVICE}) == len(DRAWS_ON_DEVICE)


@pytest.mark.parametrize(("request_name", "count"), [("logprobs", 5), ("penalties and logprobs", 2)])
def test_logprobs_are_the_hosts(runs, request_name, count):
    expected = runs["host"]["logprobs"][request_name]
    assert len(expected) == 40
    for run in runs.values():
        for found, row in zip(run["logprobs"][request_name], expected, strict=True):
            assert found[: count + 1] == pytest.approx(row[: count + 1], abs=1e-4)


def test_every_kind_of_step_was_taken(runs):
    steps = {name: run["counters"]["steps"] for name, run in runs.items()}
    assert set(steps["host"]) == {"prefill host", "decode host"}
    assert {"prefill device", "decode device", "decode split"} <= set(steps["device, async"])
    assert set(runs["device, async"]["counters"]["host_sampling"]) == {"logit_bias", "logprobs", "seed"}
    assert "prefill split" in steps["device, async, preempted"]
    prefills = {name: sum(count for step, count in taken.items() if "prefill" in step) for name, taken in steps.items()}
    assert prefills["device, async, preempted"] > prefills["device, async"]
    assert prefills["device, async, chunks"] > prefills["device, async"]
