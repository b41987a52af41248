"""Servers that end otherwise than by a request to stop."""

import os
import signal

import oracle
import pytest

from vllm_tt.demo.server import ServerFailed

pytestmark = pytest.mark.server

OPTIONS = ("--max-model-len", "256", "--max-num-seqs", "4", "--served-model-name", "oracle")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return oracle.write_checkpoint(tmp_path_factory.mktemp("oracle") / "model")


def engine_of(server):
    """The process id of the engine, from its own log lines."""
    log = server.launch.log.read_text()
    return int(log.split("(EngineCore pid=")[1].split(")")[0])


def test_a_killed_engine_ends_the_server_which_says_so(serve, checkpoint, processes_of):
    server = serve(checkpoint, *OPTIONS, bundles=oracle.BUNDLES)
    engine = engine_of(server)
    os.kill(engine, signal.SIGKILL)
    assert server.process.wait(60) == 1
    assert f"The engine (process {engine}) died with its mesh open" in server.log_tail(1)
    assert processes_of(server.process.pid) == []


def test_a_failing_model_ends_the_server_with_its_own_traceback(serve, client_of, checkpoint, processes_of):
    server = serve(checkpoint, *OPTIONS, bundles=oracle.BUNDLES, environ={"PAGED_HASH_POISON": "77"})
    status, _ = client_of(server).request(
        "POST", "/v1/completions", {"model": "oracle", "prompt": [20, 77], "max_tokens": 4}
    )
    assert status == 500
    assert server.process.wait(60) == 1
    log = server.launch.log.read_text()
    assert "generator_vllm.py" in log
    assert "token 77 is poison" in log
    assert "Mesh device closed, fabric is DISABLED" in log
    assert "The engine failed (" in server.log_tail(1)
    assert processes_of(server.process.pid) == []


def test_without_any_model_the_server_refuses_to_start(serve, checkpoint, tmp_path):
    with pytest.raises(ServerFailed) as error:
        serve(checkpoint, *OPTIONS, bundles=tmp_path)
    assert "ended with exit code 1" in str(error.value)
    log = error.value.facts["log"].read_text()
    assert "TT_VLLM_BUILTIN_MODELS" in log
    assert str(tmp_path) in log
    assert "PagedHashForCausalLM" in log
