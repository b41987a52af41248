import json

import pytest

from vllm_tt.bundle.launch import launch_entry, machine_keys, parse_options, server_words
from vllm_tt.bundle.metadata import parse


def cards(folder, *devices):
    for number, device in enumerate(devices):
        (folder / f"tenstorrent!{number}" / "device").mkdir(parents=True)
        (folder / f"tenstorrent!{number}" / "device" / "device").write_text(device + "\n")
    return folder


@pytest.mark.parametrize(
    ("environ", "devices", "keys"),
    [
        ({}, [], ["default"]),
        ({}, ["0x401e"] * 4, ["wormhole_b0-4card", "wormhole_b0", "default"]),
        ({}, ["0xb140"], ["blackhole-1card", "blackhole", "default"]),
        ({}, ["0x9999"], ["default"]),
        ({"TT_EMULATE": "P150x4"}, [], ["blackhole", "default"]),
        ({"TT_EMULATE": "T3K"}, ["0xb140"], ["wormhole_b0", "default"]),
        ({"TT_MODEL_MACHINE": "lab-7"}, ["0xb140"], ["lab-7"]),
    ],
)
def test_machine_keys(tmp_path, environ, devices, keys):
    assert machine_keys(environ, cards(tmp_path, *devices)) == keys


def test_the_first_key_that_the_map_has():
    launch = {key: {"command": [key]} for key in ("default", "blackhole")}
    text = json.dumps({"arch": "A", "main_class": "m:A", "launch": launch})
    metadata = parse(text.encode()).metadata
    assert launch_entry(metadata, ["blackhole-4card", "blackhole", "default"])[0] == "blackhole"
    assert launch_entry(metadata, ["wormhole_b0", "default"])[1].command == ("default",)
    assert launch_entry(metadata, ["lab-7"]) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve org/model --port 1", "org/model --port 1"),
        ("python3 -m vllm.entrypoints.cli.main serve org/model", "org/model"),
        ("python3 server_example_tt.py --model org/model", "--model org/model"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "--model m"),
        ("run-server --model m", "--model m"),
    ],
)
def test_words_for_the_server(command, words):
    assert server_words(command.split()) == words.split()


@pytest.mark.parametrize(
    ("words", "model", "options"),
    [
        ("org/model --port 8000 -tp 2", "org/model", {"--port": ["8000"], "-tp": ["2"]}),
        ("--model m --max_model_len 64", "m", {"--max-model-len": ["64"]}),
        ("--model=m --max-model-len=-1", "m", {"--max-model-len": ["-1"]}),
        ("--max-model-len -1 --flag", None, {"--max-model-len": ["-1"], "--flag": []}),
        ("--additional_config.tt.trace_mode none", None, {"--additional-config.tt.trace_mode": ["none"]}),
    ],
)
def test_options(words, model, options):
    assert parse_options(words.split()) == (model, options)
