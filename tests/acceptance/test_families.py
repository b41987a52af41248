"""Every reference bundle over HTTP, under pressure: its greedy tokens are those of transformers on the same weights."""

import signal
from concurrent.futures import ThreadPoolExecutor

import families
import pytest

pytestmark = pytest.mark.server

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module", params=families.FAMILIES)
def family(request):
    return families.FAMILIES[request.param]


@pytest.fixture(scope="module")
def running(family, serve, end_by, tmp_path_factory):
    """The server, and requests with the tokens of transformers, which are computed while it starts."""
    folder = tmp_path_factory.mktemp(family.tiny)
    model, beside = families.prepare(family, folder)
    requests = family.requests(model, *beside)
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(families.answers, model, requests)
        server = serve(folder, *family.command_line())
        assert len(answers.result()) > 0.6 * len(requests), "few answers are sure"
        yield server, answers.result()
    end_by(server, signal.SIGTERM)


@pytest.fixture(scope="module")
def client(running, client_of):
    return client_of(running[0])


@pytest.fixture(scope="module")
def answered(running, client):
    """All requests, sent at once: the tokens of the server beside those of transformers."""
    _, expected = running
    with ThreadPoolExecutor(len(expected)) as pool:
        found = list(pool.map(lambda pair: families.ask(client, pair[0]), expected))
    return [(request.body, tokens, theirs) for (request, theirs), tokens in zip(expected, found, strict=True)]


def test_requests_sent_at_once_get_the_tokens_of_transformers(answered):
    wrong = [body for body, ours, theirs in answered if ours != theirs]
    assert not wrong, f"{len(wrong)} of {len(answered)}"


def test_what_cannot_be_read_is_refused_and_hurts_no_other(running, family, client):
    if not (unreadable := family.unreadable()):
        pytest.skip("whatever is sent can be read")
    _, expected = running
    with ThreadPoolExecutor(24) as pool:
        good = [pool.submit(families.ask, client, request) for request, _ in expected[:10]]
        bad = {name: pool.submit(client.request, "POST", CHAT, body) for name, body in unreadable.items()}
    assert [one.result() for one in good] == [theirs for _, theirs in expected[:10]]
    assert {name: one.result()[0] for name, one in bad.items()} == dict.fromkeys(unreadable, 400)


def test_they_were_served_under_pressure(answered, family, running, client):
    # Under pressure a prefix may be gone before it is asked for again; of two in a row, the second has it.
    longest, expected = max(running[1], key=lambda pair: pair[0].inputs["input_ids"].shape[-1])
    assert [families.ask(client, longest) for _ in range(2)] == [expected] * 2
    metrics = client.metrics()
    assert metrics["vllm:num_preemptions_total"] > 0
    assert (metrics["vllm:prefix_cache_hits_total"] > 0) == family.caches_prefixes
    counters = client.post("/collective_rpc", method="counters")["results"][0]
    assert "host_sampling" not in counters
    # Steps that yield no token, as they are all chunks of prompts that go on, count as the host's.
    assert set(counters["steps"]) == {"prefill device", "prefill host", "decode device"}
    assert f"(from EXTRA_MODELS_DIR/{family.bundle})" in running[0].launch.log.read_text()


def test_nothing_is_held_when_all_is_answered(answered, client):
    assert client.held() == {"requests": 0, "rows": 0, "pages": 0}
