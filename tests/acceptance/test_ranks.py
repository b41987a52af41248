"""A data-parallel size that becomes engines with devices of their own; one of them is killed."""

import os
import re
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import oracle
import pytest

pytestmark = pytest.mark.server

REQUESTS = 32


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(
        oracle.write_checkpoint(tmp_path_factory.mktemp("oracle") / "model"),
        *("--data-parallel-size", "2", "--max-num-seqs", "4"),
        *("--max-model-len", "256", "--served-model-name", "oracle"),
        bundles=oracle.BUNDLES,
        mesh="2xT3K",
        environ={"MESH_DEVICE": ""},
    )


def engine(server, rank):
    """The process id of an engine, from its own log lines."""
    return int(re.search(rf"\(EngineCore_DP{rank} pid=(\d+)\)", server.launch.log.read_text())[1])


def tokens_by_engine(server):
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    found = [re.match(r'vllm:generation_tokens_total\{engine="\d".*\} (\S+)$', line) for line in lines]
    return [float(match[1]) for match in found if match]


def test_both_engines_serve_on_their_own_devices_and_one_that_dies_ends_the_server(server, client_of, processes_of):
    client = client_of(server)
    prompts = [[number + oracle.RESERVED] * (1 + number) for number in range(REQUESTS)]

    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda prompt: client.greedy_tokens(prompt, 20), prompts))
    assert answers == [oracle.expected_tokens(prompt, 20) for prompt in prompts]
    sampled = tokens_by_engine(server)
    assert len(sampled) == 2
    assert min(sampled) > 0
    assert sum(sampled) == REQUESTS * 20

    log = server.launch.log.read_text()
    assert (
        "2 engines x 4 = 8 requests at once on the devices 0,1,2,3 and 4,5,6,7, a 2x4 mesh each, at most 256 tokens"
    ) in log
    for rank, devices in enumerate(("0,1,2,3", "4,5,6,7")):
        lines = "\n".join(line for line in log.splitlines() if f"(EngineCore_DP{rank} pid=" in line)
        assert f"Engine {rank} of 2 has the devices {devices}, a 2x4 mesh" in lines
        assert "Attempting to open mesh device with grid shape (2, 4): T3K (8 chips)" in lines
        assert "multidevice with 8 devices and grid (2, 4) is created" in lines

    killed = engine(server, 1)
    os.kill(killed, signal.SIGKILL)
    assert server.process.wait(60) == 1
    end = server.log_tail(2)
    assert "Engine 0 has closed its mesh" in end
    assert f"Engine 1 (process {killed}) died with its mesh open" in end
    assert processes_of(server.process.pid) == []
