"""Real servers, one at a time: a module has one server, and says how it must end."""

import http.client
import json
import signal
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vllm_tt.demo.server import HOST, Launch, Server

CLEAN_END = "The server has ended and its mesh is closed"


class Client:
    """JSON over HTTP, a connection a request."""

    def __init__(self, server):
        self.port = server.port

    def request(self, method, path, body=None):
        """The status and the document of the answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=300)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read() or "null")
        finally:
            connection.close()

    def post(self, path, **body):
        status, answer = self.request("POST", path, body)
        assert status == 200, answer
        return answer

    def greedy_tokens(self, prompt, count):
        """The ``count`` token ids that follow a prompt of token ids, by the oracle."""
        body = {"model": "oracle", "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        return self.post("/v1/completions", **body, return_token_ids=True)["choices"][0]["token_ids"]

    def held(self):
        """What the worker holds, after its books were checked."""
        return self.post("/collective_rpc", method="check")["results"][0]

    def metrics(self):
        """The gauges and counters of vLLM's Prometheus page, by name without labels."""
        return {sample.name: sample.value for sample in self._samples()}

    def counts(self):
        """Our own counters there, as the worker tells them: by family and reason, times in seconds."""
        found = {}
        for sample in self._samples():
            name, ours = sample.name.removeprefix("vllm_tt:"), sample.name.startswith("vllm_tt:")
            if ours and name.endswith("_total"):
                reason = "".join(
                    value for label, value in sample.labels.items() if label not in ("model_name", "engine")
                )
                found.setdefault(name.removesuffix("_total"), {})[reason] = sample.value
        return found

    def _samples(self):
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def processes_of(group, seconds=10):
    """Process ids that stay in a process group; multiprocessing's tracker takes a moment to see that it is alone."""
    deadline = time.monotonic() + seconds
    while (found := processes_now(group)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def processes_now(group):
    """Process ids in a process group, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # the process has gone
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def end_by(server, number):
    """Ends a server as an operator would; asserts that it went cleanly."""
    server.process.send_signal(number)
    assert server.process.wait(60) == 0
    assert CLEAN_END in server.log_tail(1)
    assert "Mesh device closed, fabric is DISABLED" in server.launch.log.read_text()
    assert processes_of(server.process.pid) == []


@pytest.fixture(scope="session")
def emulation_cache(tmp_path_factory):
    """The default cache serves: its checkpoint and firmware are made once."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """``serve(model, *arguments, end=SIGTERM, **launch)``: a healthy server, ended with the module."""
    servers = []

    def start(model, *arguments, end=signal.SIGTERM, **launch):
        log = tmp_path_factory.mktemp("server") / "server.log"
        environ = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1"} | launch.pop("environ", {})
        server = Server(Launch(model=str(model), log=log, arguments=arguments, environ=environ, **launch))
        servers.append((server, end))
        server.wait_healthy(timeout=280)
        return server

    yield start
    for server, end in servers:
        try:
            if server.process.poll() is None:
                end_by(server, end)
        finally:
            server.stop()


@pytest.fixture(scope="module")
def client_of():
    return Client


@pytest.fixture(name="end_by", scope="session")
def end_by_fixture():
    return end_by


@pytest.fixture(name="processes_of", scope="session")
def processes_of_fixture():
    return processes_of
