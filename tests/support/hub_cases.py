"""Repositories in the layouts that tt-model publishes, and a bundle to push."""

import hashlib
import json

ADAPTER = "class Adapter:\n    pass\n"
METADATA = '{"arch": "LlamaForCausalLM", "main_class": "adapter:Adapter"}\n'
LAUNCH = {"default": {"command": ["python3", "server.py", "--model", "org/weights"], "env": {"MESH_DEVICE": "N300"}}}


def manifest(version, **blocks):
    return json.dumps({"schema_version": version, "name": "x", "arch": "wormhole_b0", "files": [], **blocks})


def listed(files):
    """The manifest's list of files."""
    return [
        {"path": path, "size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for path, text in files.items()
    ]


V3_FILES = {
    "vllm_bundle/vllm_metadata.json": json.dumps({**json.loads(METADATA), "launch": LAUNCH}),
    "vllm_bundle/adapter.py": ADAPTER,
    "vllm_bundle/tt/model.py": "LAYERS = 1\n",
}
V3 = {
    **V3_FILES,
    "README.md": "# x\n",
    ".gitattributes": "",
    "tt_kernel_manifest.json": manifest("3", files=listed(V3_FILES)),
}
V4 = {
    "README.md": "# x\n",
    "tt_kernel_manifest.json": manifest(
        "4",
        entrypoint={"cls": "models.demos.x.generator_vllm:Adapter", "arch_name": "LlamaForCausalLM"},
        weights={"repo_id": "org/weights", "revision": "v1"},
        platform={"ttnn": ">=0.1"},
        runtime={"kind": "vllm", "version": ">=0.9", "plugin_version": ">=99"},
        resources={"max_model_len": 4096, "max_num_seqs": 32, "trace_region_bytes": 1000, "extra_args": ["--x", 1]},
        capabilities={"tool_parser": "llama3_json"},
        env={"MESH_DEVICE": "N300"},
    ),
}
V5 = {
    "README.md": "# x\n",
    "tt_kernel_manifest.json": manifest("5", bundled={"metal_dir": "metal"}),
    "install.sh": "exit 99\n",
    "run.sh": "touch /tmp/ran\n",
    "requirements.txt": "x\n",
    "wheels/ttnn.whl": "not fetched",
    "metal/models/x/generator_vllm.py": ADAPTER,
    "metal/models/__init__.py": "",
    "vllm_models/x/vllm_metadata.json": json.dumps(
        {"arch": "LlamaForCausalLM", "main_class": "models.x.generator_vllm:Adapter"}
    ),
}
V6 = {
    "README.md": "# x\n",
    "tt_kernel_manifest.json": manifest("6", deps={"requirements": "requirements.txt"}),
    "install.sh": "exit 99\n",
    "requirements.txt": "x\n",
    "adapter.py": ADAPTER,
    "tt/model.py": "LAYERS = 1\n",
    "vllm_models/x/vllm_metadata.json": METADATA,
}
