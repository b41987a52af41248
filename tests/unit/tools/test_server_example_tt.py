import io
import json
import shlex
import subprocess
import sys

import pytest
from PIL import Image
from tools import server_example_tt as example

URL = "http://localhost:8000"


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ([], URL),
        (["m", "--port", "9000"], "http://localhost:9000"),
        (["--model=m", "--max_model_len", "2048", "--port=9001"], "http://localhost:9001"),
    ],
)
def test_the_port_is_read_from_the_servers_own_arguments(arguments, url):
    assert example.address(arguments) == url


def test_the_image_can_be_read():
    image = Image.open(io.BytesIO(example.png()))
    assert (image.size, image.getpixel((63, 63))) == ((64, 64), (200, 30, 30))


def test_what_is_printed_is_what_a_shell_sends():
    lines = [line for line in example.page(URL, "it's").splitlines() if "/v1/chat" in line]
    sent = [json.loads(shlex.split(line)[-1]) for line in lines]
    assert sent == list(example.requests("it's").values())


def test_the_server_gets_the_arguments_as_they_are_and_gives_its_exit_code(monkeypatch):
    child = "import sys; sys.exit(3 if sys.argv[1:] == ['m', '--max_model_len', '64'] else 4)"
    started = subprocess.Popen
    seen = []

    def popen(command):
        seen.append(command)
        return started([sys.executable, "-c", child, *command[4:]])

    monkeypatch.setattr(example.subprocess, "Popen", popen)
    monkeypatch.setattr(example.signal, "signal", lambda *_: None)
    monkeypatch.setattr(example, "is_healthy", lambda _url: False)
    assert example.main(["m", "--max_model_len", "64"]) == 3
    assert seen[0][:4] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
