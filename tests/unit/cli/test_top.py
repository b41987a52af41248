"""``tt-bundle top`` on two recorded readings of a server that was busy, and on what is no such server."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from vllm_tt.cli import main
from vllm_tt.observe.live import Restarted, activity
from vllm_tt.observe.scrape import metrics_url, parsed

RECORDED = Path(__file__).parents[1] / "observe" / "recorded"
READINGS = [(RECORDED / f"metrics-{number}.txt").read_text() for number in (1, 2)]


@contextlib.contextmanager
def serving(*answers, status=200):
    """A server that gives the answers one after another, the last one again and again; yields its address."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(*arguments):
    return CliRunner().invoke(main, ["top", *arguments])


def test_an_interval_in_80_columns(monkeypatch):
    monkeypatch.setattr("vllm_tt.cli.top._next", lambda _address, before, _interval: (between(), before))
    with serving(READINGS[0]) as url:
        result = run(url, "--once")
    assert result.stdout.replace(url, "URL") == (RECORDED / "top.txt").read_text()
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.exit_code == 0


def between(seconds=5.0):
    before, after = (parsed(text, "URL", at) for text, at in zip(READINGS, (0.0, seconds), strict=True))
    return activity(before, after)


def test_two_readings_as_json():
    with serving(*READINGS) as url:
        result = run(url, "--interval", "0.2", "--json")
    document = json.loads(result.stdout)
    assert (document["ok"], document["url"]) == (True, f"{url}/metrics")
    expected = json.loads((RECORDED / "top.json").read_text())
    figures = {name: document["activity"][name] for name in expected}  # those that no clock has a part in
    assert figures == expected


def test_a_server_that_began_anew_is_waited_out():
    before, after = (parsed(text, "URL", at) for text, at in zip(reversed(READINGS), (0.0, 5.0), strict=True))
    with pytest.raises(Restarted):
        activity(before, after)
    with serving(READINGS[1], *READINGS) as url:
        result = run(url, "--interval", "0.2", "--json")
    assert json.loads(result.stdout)["activity"]["stalls"] == between().stalls


@pytest.mark.parametrize(
    ("text", "status", "message", "code"),
    [
        (
            "",
            404,
            (
                "URL/metrics is not a vLLM server's /metrics (HTTP 404): give the address that clients use, as "
                "http://HOST:PORT."
            ),
            3,
        ),
        (
            "<html>hello</html>",
            200,
            (
                "URL/metrics is not a vLLM server's /metrics (something else than metrics): give the "
                "address that clients "
                "use, as http://HOST:PORT."
            ),
            3,
        ),
        (
            "up 1\n",
            200,
            (
                "URL/metrics is not a vLLM server's /metrics (none of its metrics): give the address "
                "that clients use, as "
                "http://HOST:PORT."
            ),
            3,
        ),
        (
            'vllm:num_requests_running{engine="0"} 1\n',
            200,
            (
                "URL/metrics has no metrics named vllm_tt:*: the server runs with --disable-log-stats, "
                "without this package, "
                'or on another platform; where it is ours, its log has a line that begins with "Serving".'
            ),
            1,
        ),
    ],
    ids=["not found", "a page", "another program", "another platform"],
)
def test_what_is_no_server_of_ours(text, status, message, code):
    with serving(text, status=status) as url:
        result = run(url, "--once")
    assert (result.exit_code, result.stderr.replace(url, "URL")) == (code, f"tt-bundle: error: {message}\n")


def test_a_server_that_is_not_there():
    with serving("") as url:
        pass
    result = run(url, "--once")
    assert (result.exit_code, result.stderr) == (
        3,
        (
            f"tt-bundle: error: {url}/metrics does not answer (Connection refused): is the server "
            f"healthy, and are these its "
            "host and port?\n"
        ),
    )


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost:8000", "http://localhost:8000/metrics"),
        ("http://localhost:8000/", "http://localhost:8000/metrics"),
        ("https://host/v1", "https://host/metrics"),
        ("http://host:1/tt/metrics", "http://host:1/tt/metrics"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_is_completed(url, address):
    assert metrics_url(url) == address


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "http://", "host:port", "http://host:99999"])
def test_what_is_no_address(url):
    result = run(url)
    assert (result.exit_code, result.stderr) == (
        2,
        f"tt-bundle: error: {url!r} is no address of a server: write http://HOST:PORT, such as http://localhost:8000.\n",
    )
