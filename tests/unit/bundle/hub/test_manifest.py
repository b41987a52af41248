import json

import pytest
from hub_cases import LAUNCH, V4

from vllm_tt.bundle.hub.manifest import Manifest, device_architecture, manifest_for
from vllm_tt.bundle.metadata import parse

BASE = {"arch": "TTLlamaForCausalLM", "main_class": "m:C"}


def metadata_of(**fields):
    return parse(json.dumps({**BASE, **fields}).encode()).metadata


def test_metadata_is_rendered_from_the_entry_point():
    rendered = Manifest.parse(V4["tt_kernel_manifest.json"].encode()).rendered()
    command = [
        "python3", "server_example_tt.py", "--model", "org/weights", "--max_model_len", "4096", "--max_num_seqs", "32",
        "--x", "1",
    ]  # fmt: skip
    assert json.loads(rendered) == {
        "arch": "LlamaForCausalLM",
        "main_class": "models.demos.x.generator_vllm:Adapter",
        "hf_weights": "org/weights",
        "hf_revision": "v1",
        "requires": {"ttnn": ">=0.1", "vllm": ">=0.9"},
        "limits": {"max_model_len": 4096, "max_num_seqs": 32, "trace_region_size": 1000},
        "serving": {"tool_parser": "llama3_json"},
        "launch": {"default": {"command": command, "env": {"VLLM_USE_V1": "1", "MESH_DEVICE": "N300"}}},
    }
    assert parse(rendered).findings == ()


def test_authored_names_and_a_command_of_its_own():
    text = {
        "entrypoint": {"class": "m:C", "arch_name": "A"},
        "weights": {"repo": "org/w"},
        "resources": {"command_override": ["x", 1]},
    }
    rendered = json.loads(Manifest(root=text).rendered())
    assert (rendered["main_class"], rendered["hf_weights"]) == ("m:C", "org/w")
    assert rendered["launch"]["default"]["command"] == ["x", "1"]


@pytest.mark.parametrize(
    "root",
    [
        {},
        {"entrypoint": None},
        {"entrypoint": {"cls": "", "arch_name": "A"}},
        {"entrypoint": {"cls": "m:C", "arch_name": 3}},
        {"entrypoint": {}},
    ],
)
def test_no_entry_point(root):
    assert Manifest(root=root).rendered() is None


@pytest.mark.parametrize("junk", [[], "x", 3, None, {"a": {}}])
def test_blocks_of_any_type_do_no_harm(junk):
    names = ("weights", "platform", "runtime", "resources", "capabilities", "env", "bundled", "files")
    found = Manifest(root={"entrypoint": {"cls": "m:C", "arch_name": "A"}, **dict.fromkeys(names, junk)})
    assert json.loads(found.rendered())["hf_weights"] is None
    assert (found.files, found.metal_dir) == ({}, None)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest(data):
    assert Manifest.parse(data) is None


@pytest.mark.parametrize("name", ["../x", "/etc", "a/../b", 3, ""])
def test_a_code_folder_outside_is_not_believed(name):
    found = Manifest(root={"bundled": {"metal_dir": name}}).metal_dir
    assert found in (None, "etc")


def test_a_bundle_with_a_launch_map_is_version_3():
    text = manifest_for("mine", metadata_of(launch=LAUNCH, hf_weights="org/w", hf_revision="v1"), "blackhole")
    written = json.loads(text)
    assert (written["schema_version"], written["arch"], written["files"]) == ("3", "blackhole", [])
    assert written["weights"] == {"repo_id": "org/w", "revision": "v1"}
    assert "entrypoint" not in written
    assert text == manifest_for("mine", metadata_of(launch=LAUNCH, hf_weights="org/w", hf_revision="v1"), "blackhole")


def test_one_without_is_version_4_so_that_tt_model_makes_one():
    metadata = metadata_of(
        requires={"vllm": ">=0.9", "ttnn": ">=0.1"}, limits={"max_model_len": 4096}, serving={"tool_parser": "x"}
    )
    written = json.loads(manifest_for("mine", metadata, "wormhole_b0"))
    assert written["schema_version"] == "4"
    assert written["entrypoint"] == {"cls": "m:C", "arch_name": "LlamaForCausalLM"}
    assert written["platform"] == {"ttnn": ">=0.1"}
    assert written["runtime"] == {"kind": "vllm", "version": ">=0.9"}
    assert written["resources"] == {"max_model_len": 4096}
    assert written["capabilities"] == {"tool_parser": "x"}
    assert Manifest(root=written).rendered() is not None


def test_nothing_of_the_machine_is_written():
    producer = json.loads(manifest_for("mine", metadata_of(), "wormhole_b0"))["producer"]
    assert (producer["hostname"], producer["tt_metal_home"]) == ("", "")


@pytest.mark.parametrize(
    ("fields", "expected", "devices"),
    [
        ({}, "wormhole_b0", 1),
        ({"mesh_devices": ["N300"]}, "wormhole_b0", 2),
        ({"mesh_devices": ["?", "P150x4", "N300"]}, "blackhole", 4),
        ({"mesh_devices": ["BH-Galaxy"]}, "blackhole", 32),
        ({"launch": {"blackhole-4card": LAUNCH["default"]}, "mesh_devices": ["N300"]}, "blackhole", 2),
    ],
)
def test_the_devices_that_a_bundle_is_for(fields, expected, devices):
    metadata = metadata_of(**fields)
    assert device_architecture(metadata) == expected
    assert json.loads(manifest_for("mine", metadata, expected))["device_count"] == devices
