"""Both ways to start the engine, each with a server of its own: forked where it is safe, or as a new process."""

import os
import signal

import oracle
import pytest

pytestmark = pytest.mark.server

OPTIONS = ("--max-model-len", "256", "--max-num-seqs", "4", "--served-model-name", "oracle")
IMPORTED = "Available plugins for group vllm.platform_plugins"
"""What vLLM logs once in each process that imports it."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return oracle.write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")


def end(server, processes_of):
    """As systemd and `timeout` do it: the engine gets the signal, and again from the server."""
    os.killpg(server.process.pid, signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert processes_of(server.process.pid) == []


@pytest.mark.parametrize(("how", "imports"), [("auto", 1), ("spawn", 2)])
def test_an_engine_serves_and_ends_whichever_way_it_started(serve, client_of, checkpoint, processes_of, how, imports):
    server = serve(checkpoint, *OPTIONS, bundles=oracle.BUNDLES, environ={"TT_ENGINE_START": how})
    log = server.launch.log.read_text()
    assert log.count(IMPORTED) == imports, [line for line in log.splitlines() if "imports vLLM again" in line]
    prompt = [7, 300, 21]
    assert client_of(server).greedy_tokens(prompt, 40) == oracle.expected_tokens(prompt, 40)
    end(server, processes_of)
    assert "The server has ended and its mesh is closed" in server.log_tail(1)
