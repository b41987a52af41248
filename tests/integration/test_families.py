"""Reference bundles through vLLM's engine: each request's tokens are those of transformers."""

from types import SimpleNamespace

import pytest

CACHES_PREFIXES = {"gemma3": True, "qwen3_5": False}
"""By family: windows beside full attention, and state by slot."""


@pytest.fixture(scope="module", params=CACHES_PREFIXES)
def family(request, run_family):
    return SimpleNamespace(**run_family(request.param), caches_prefixes=CACHES_PREFIXES[request.param])


def test_every_run_has_the_tokens_of_transformers(family):
    assert len(family.expected) == 14
    wrong = [
        (run, request)
        for run, found in family.runs.items()
        for request, tokens in family.expected.items()
        if found["tokens"][request] != tokens
    ]
    assert not wrong


def test_the_runs_are_what_their_names_say(family):
    runs = family.runs
    assert [name for name, run in runs.items() if run["preempted"]] == [name for name in runs if "preempted" in name]
    prefills = {name: run["phases"].count("P") for name, run in runs.items()}
    assert prefills["device, async, chunks of 7"] > 3 * prefills["device"]


def test_requests_begin_with_pages_that_others_computed_where_that_is_declared(family):
    caches = family.caches_prefixes
    assert {run["prefix_caching"] for run in family.runs.values()} == {caches}
    if caches:
        assert all(run["cached"] for name, run in family.runs.items() if "preempted" not in name)
