"""``vllm serve`` on a Tenstorrent mesh, with requests to try: it prints them as curl lines when the server is healthy.

    MESH_DEVICE=T3K python tools/server_example_tt.py --model meta-llama/Llama-3.1-8B-Instruct --max_num_seqs 16
    TT_EMULATE=N300 EXTRA_MODELS_DIR=bundles python tools/server_example_tt.py CHECKPOINT --max-model-len 2048

Every flag is one of ``vllm serve`` and goes to it as it is; underscores are as good as dashes. Ctrl-C ends both.
"""

import argparse
import base64
import json
import signal
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib

CAPITAL = {
    "type": "object",
    "properties": {"country": {"type": "string"}, "capital": {"type": "string"}},
    "required": ["country", "capital"],
    "additionalProperties": False,
}


def main(arguments):
    url = address(arguments)
    server = subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", *arguments])
    # Ctrl-C reaches the server by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _frame: server.send_signal(number))
    while server.poll() is None and not is_healthy(url):
        time.sleep(0.5)
    if server.poll() is None:
        print(page(url, served_name(url)), flush=True)
    return server.wait()


def address(arguments):
    """Where clients on this machine reach the server."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", default="8000")
    return f"http://localhost:{parser.parse_known_args(arguments)[0].port}"


def is_healthy(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def served_name(url):
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
            return json.load(answer)["data"][0]["id"]
    except urllib.error.HTTPError:  # it asks for its key
        return "MODEL"


def requests(model):
    """Bodies of chat completions, by what they show."""

    def body(content, **more):
        return {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 64,
            "temperature": 0,
            **more,
        }

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png()).decode()}}
    schema = {"type": "json_schema", "json_schema": {"name": "capital", "schema": CAPITAL}}
    return {
        "A chat": body("What is the capital of France?"),
        "The answer as it comes": body(
            "Count from one to twenty.", stream=True, stream_options={"include_usage": True}
        ),
        "An answer in the form of a JSON schema": body("Which city is the capital of Japan?", response_format=schema),
        "An image, for models that see": body([picture, {"type": "text", "text": "What colour is this?"}]),
    }


def png(side=64, colour=(200, 30, 30)):
    """A square of one colour."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def curl(url, body):
    """A chat completion as a command line; ``-N`` shows a stream as it comes."""
    text = json.dumps(body).replace("'", "'\\''")
    return f"curl -sN {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{text}'"


def page(url, model):
    examples = "".join(f"\n# {title}\n{curl(url, body)}\n" for title, body in requests(model).items())
    counts = f"# Our counts of what it did\ncurl -s {url}/metrics | grep ^vllm_tt\n"
    return f"\nThe server is healthy. Requests to try:\n{examples}\n{counts}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
