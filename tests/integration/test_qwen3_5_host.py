"""The reference bundle with state by slot through vLLM's engine: each request's tokens are those of transformers."""

import pytest


@pytest.fixture(scope="module")
def results(run_family):
    return run_family("qwen3_5")


def test_every_run_has_the_tokens_of_transformers(results):
    assert len(results["expected"]) == 14
    wrong = [
        (run, request)
        for run, found in results["runs"].items()
        for request, tokens in results["expected"].items()
        if found["tokens"][request] != tokens
    ]
    assert not wrong


def test_the_runs_are_what_their_names_say(results):
    runs = results["runs"]
    assert [name for name, run in runs.items() if run["preempted"]] == [name for name in runs if "preempted" in name]
    prefills = {name: run["phases"].count("P") for name, run in runs.items()}
    assert prefills["device, async, chunks of 7"] > 3 * prefills["device"]
    assert not any(run["prefix_caching"] for run in runs.values())
