"""Two servers behind a router as docs/scale-out.md has them; one is killed under load, and clients see what it says."""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import oracle
import pytest

from vllm_tt.demo.server import HOST, Launch, Server, free_port

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[2] / "docs" / "scale-out.md"
COMMAND = re.compile(r"^vllm-router (.*\\\n)*.*$", re.MULTILINE)
STREAMS, PLAIN, LATER, LENGTH = 12, 12, 24, 400
OPTIONS = ("--max-model-len", "512", "--max-num-seqs", "16", "--served-model-name", "oracle")


class Router:
    """The router's process, started by the command of the page on other ports, and what it says of itself."""

    def __init__(self, replicas, log):
        self.port, metrics = free_port(), free_port()
        program, *words = shlex.split(COMMAND.search(PAGE.read_text())[0].replace("\\\n", " "))
        at = words.index("--worker-urls") + 1
        words[at : at + len(replicas)] = [replica.url for replica in replicas]
        for option, value in {"--host": HOST, "--port": self.port, "--prometheus-port": metrics}.items():
            words[words.index(option) + 1] = str(value)
        path = shutil.which(program)
        assert path, "vllm-router is not installed; it is in the dev group: uv sync"
        with log.open("wb") as stream:
            self.process = subprocess.Popen([path, *words], stdout=stream, stderr=subprocess.STDOUT)

    def get(self, path):
        """The status and the text of an answer; 0 while nothing listens."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def ready(self):
        """How many replicas the router counts on; None when it is not ready itself."""
        status, text = self.get("/readiness")
        return json.loads(text)["healthy_workers"] if status == 200 else None

    def stop(self):
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    """Two servers, which start at the same time."""
    folder = tmp_path_factory.mktemp("replicas")
    model = str(oracle.write_checkpoint(folder / "model"))
    launches = [
        Launch(model=model, log=folder / f"{name}.log", mesh="N150", bundles=oracle.BUNDLES, arguments=OPTIONS)
        for name in ("first", "second")
    ]
    servers = [Server(launch) for launch in launches]
    try:
        for server in servers:
            server.wait_healthy(timeout=280)
        yield servers
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="module")
def router(replicas, tmp_path_factory):
    started = Router(replicas, tmp_path_factory.mktemp("router") / "router.log")
    try:
        assert within(30, lambda: started.ready() == len(replicas))
        yield started
        assert started.stop() == 0
    finally:
        started.process.kill()
        started.process.wait()


def within(seconds, condition):
    """Whether ``condition`` comes true in that time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def ask(router, prompt, *, stream, under_way=None):
    """(status, tokens, whole): what a client gets; ``under_way`` is told of a stream's first token."""
    connection = http.client.HTTPConnection(HOST, router.port, timeout=60)
    body = {"model": "oracle", "prompt": prompt, "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
    body |= {"stream": stream, "return_token_ids": True}
    tokens, whole = [], False
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if not stream:
            text = answer.read()
            return answer.status, json.loads(text)["choices"][0]["token_ids"] if answer.status == 200 else text, True
        while line := answer.readline():
            field, _, value = line.decode().strip().partition(": ")
            whole |= value == "[DONE]"
            if field == "data" and not whole:
                if not tokens:
                    under_way.release()
                tokens += json.loads(value)["choices"][0]["token_ids"]
    except http.client.IncompleteRead:
        assert not whole
    finally:
        connection.close()
    return answer.status, tokens, whole


def prompt_tokens_of(replica):
    """The tokens of the prompts that a replica has prefilled, from its own metrics."""
    connection = http.client.HTTPConnection(HOST, replica.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(count) for count in re.findall(r"^vllm:prompt_tokens_total\{.*\} (\S+)$", text, re.MULTILINE))


def test_a_replica_that_is_killed_costs_its_streams_and_nothing_else(replicas, router):
    prompts = [[oracle.RESERVED + number] * (3 + number) for number in range(STREAMS + PLAIN + LATER)]
    streamed, plain, later = prompts[:STREAMS], prompts[STREAMS:-LATER], prompts[-LATER:]
    under_way = threading.Semaphore(0)
    killed, left = replicas
    with ThreadPoolExecutor(len(prompts)) as pool:
        streams = [pool.submit(ask, router, prompt, stream=True, under_way=under_way) for prompt in streamed]
        answers = [pool.submit(ask, router, prompt, stream=False) for prompt in plain]
        for _ in range(STREAMS):
            assert under_way.acquire(timeout=30)
        assert min(prompt_tokens_of(replica) for replica in replicas) > 0
        os.killpg(killed.process.pid, signal.SIGKILL)
        answers += [pool.submit(ask, router, prompt, stream=False) for prompt in later]
        seen = [stream.result() for stream in streams]
        # requests without a stream are sent again to the replica that is left, in flight or not
        assert [one.result() for one in answers] == [
            (200, oracle.expected_tokens(prompt, LENGTH), True) for prompt in plain + later
        ]

    broken = 0
    for prompt, (status, tokens, whole) in zip(streamed, seen, strict=True):
        expected = oracle.expected_tokens(prompt, LENGTH)
        assert status == 200
        assert tokens == (expected if whole else expected[: len(tokens)])
        broken += not whole
    # the streams of the killed replica end in mid-air
    print(f"{broken} of {STREAMS} streams broke")
    assert 0 < broken < STREAMS

    assert within(20, lambda: router.ready() == 1)
    assert router.get("/health") == (503, f'Unhealthy servers: ["{killed.url}"]')
    assert left.healthy()
