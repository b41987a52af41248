"""A data-parallel size that becomes lanes of one engine, as an operator types it."""

import random
from concurrent.futures import ThreadPoolExecutor

import oracle
import pytest

from vllm_tt.telemetry import FAMILIES

pytestmark = pytest.mark.server

REQUESTS, LONGEST = 64, 300
CAPABILITIES = (
    "supports_prefix_caching,supports_chunked_prefill,supports_async_decode,supports_sample_on_device,supports_lanes"
)


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(
        oracle.write_checkpoint(tmp_path_factory.mktemp("oracle") / "model"),
        *("--data-parallel-size", "4", "--max-num-seqs", "8", "--async-scheduling"),
        *("--additional-config.tt.sample_on_device_mode", "all"),
        *("--max-model-len", "512", "--served-model-name", "oracle"),
        bundles=oracle.BUNDLES,
        mesh="TG",
        environ={"PAGED_HASH_CAPABILITIES": CAPABILITIES, "PAGED_HASH_CONTRACT": "1"},
    )


def test_four_lanes_of_eight_serve_and_every_answer_is_exact(server, client_of):
    client = client_of(server)
    rng = random.Random(7)
    prompts = [
        [rng.randrange(oracle.RESERVED, oracle.VOCAB_SIZE) for _ in range(rng.randint(1, LONGEST))]
        for _ in range(REQUESTS)
    ]

    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda prompt: client.greedy_tokens(prompt, 40), prompts))
    assert answers == [oracle.expected_tokens(prompt, 40) for prompt in prompts]
    assert client.held() == {"requests": 0, "rows": 0, "pages": 0}

    # what the engine has counted is on the server's page
    counted, told = client.post("/collective_rpc", method="counters")["results"][0], client.counts()
    assert counted["tokens"]["prefill"] == sum(map(len, prompts))
    scales = {family.name: family.scale for family in FAMILIES}
    expected = {
        name: {reason: pytest.approx(count * scales[name]) for reason, count in counts.items()}
        for name, counts in counted.items()
    }
    assert {name: told[name] for name in expected} == expected
    assert {name for name in told if name not in expected} <= {"preemptions", "recomputed_tokens", "chunked_prompts"}


def test_the_log_says_what_became_of_the_size(server):
    log = server.launch.log.read_text()
    assert "Serving TTPagedHashForCausalLM on TG (8x4) of an emulated TG: one engine, 4 lanes x 8 = 32 requests" in log
    assert "multidevice with 32 devices and grid (8, 4) is created" in log
    assert "KV cache of each of 4 lanes: 2056 pages of 64 tokens" in log
    # one engine and one API server, though vLLM counts four of each
    assert "(EngineCore pid=" in log
    assert "(EngineCore_DP" not in log
    assert "(ApiServer_" not in log
