"""The oracle over HTTP: many clients at once, some of which hang up; every answer exact, nothing held at the end.

A failing run prints its seed; ORACLE_SEED replays the workload.
"""

import http.client
import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import oracle
import pytest

from vllm_tt.demo.server import HOST

pytestmark = pytest.mark.server

REQUESTS, CLIENTS, LONGEST = 500, 32, 1500


CACHES = "supports_prefix_caching,supports_chunked_prefill"
SAMPLES = ",supports_async_decode,supports_sample_on_device,max_device_top_k=32"
DEVICES = {
    "logits": ({"PAGED_HASH_CAPABILITIES": CACHES}, ()),
    "tokens, ahead": (
        {"PAGED_HASH_CAPABILITIES": CACHES + SAMPLES, "PAGED_HASH_CONTRACT": "1", "PAGED_HASH_COMPUTE": "thread"},
        ("--additional-config.tt.sample_on_device_mode", "all"),
    ),
}


@pytest.fixture(scope="module", params=DEVICES)
def server(request, serve, end_by, tmp_path_factory):
    environ, more = DEVICES[request.param]
    checkpoint = oracle.write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")
    options = ("--max-model-len", "1600", "--max-num-seqs", "32", "--served-model-name", "oracle", *more)
    made = serve(checkpoint, *options, bundles=oracle.BUNDLES, environ=environ)
    yield made
    end_by(made, signal.SIGTERM)


def stream(port, prompt, count, hang_up_after):
    """The tokens of a streamed completion; the client closes the connection once it has ``hang_up_after``."""
    connection = http.client.HTTPConnection(HOST, port, timeout=280)
    body = {
        "model": "oracle",
        "prompt": prompt,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    tokens = []
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while line := response.readline():
            field, _, value = line.decode().strip().partition(": ")
            if field == "data" and value != "[DONE]":
                tokens += json.loads(value)["choices"][0]["token_ids"]
            if hang_up_after is not None and len(tokens) >= hang_up_after:
                break
    finally:
        connection.close()
    return tokens


def workload(rng):
    """(prompt, tokens asked for, tokens after which the client hangs up or None)"""
    for _ in range(REQUESTS):
        length = rng.choice([1, 2, rng.randint(1, 64), rng.randint(1, LONGEST), rng.randint(1, LONGEST)])
        count = rng.randint(1, 60)
        hang_up = rng.randint(0, count) if rng.random() < 0.15 else None
        yield [rng.randrange(oracle.RESERVED, oracle.VOCAB_SIZE) for _ in range(length)], count, hang_up


def test_every_surviving_request_is_exact_and_nothing_is_held_at_the_end(server, client_of):
    seed = int(os.environ.get("ORACLE_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    cases = list(workload(random.Random(seed)))
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda case: stream(server.port, *case), cases))
    for number, ((prompt, count, hang_up), tokens) in enumerate(zip(cases, answers, strict=True)):
        expected = oracle.expected_tokens(prompt, count)
        assert tokens == (expected if hang_up is None else expected[: len(tokens)]), f"request {number}"
    assert sum(hang_up is not None for *_, hang_up in cases) > REQUESTS // 20

    client = client_of(server)
    assert settles(lambda: client.held() == {"requests": 0, "rows": 0, "pages": 0})
    metrics = client.metrics()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert metrics[name] == 0, name


def settles(condition, seconds=30):
    """Whether ``condition`` comes true; the last aborts may still be on their way."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return condition()
