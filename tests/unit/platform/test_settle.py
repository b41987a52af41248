"""Configurations from command lines, through vLLM's own arguments, with bundles that declare this or that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import CONFIG

SCRIPT = Path(__file__).parents[2] / "support" / "configure.py"
CAPABILITIES = {
    "supports_prefix_caching": True,
    "supports_chunked_prefill": True,
    "supports_async_decode": True,
    "supports_sample_on_device": True,
}
BUNDLES = {
    "plain": ("LlamaForCausalLM", {}),
    "able": ("Qwen2ForCausalLM", CAPABILITIES),
    "hybrid": ("TTHybridProbeForCausalLM", {}),
    "able-hybrid": ("TTAbleHybridProbeForCausalLM", CAPABILITIES),
    "lanes": ("MistralForCausalLM", CAPABILITIES | {"supports_lanes": True}),
    "made for T3K": ("Qwen3ForCausalLM", CAPABILITIES, {"mesh_devices": ["T3K"]}),
}
MODELS = {
    "plain": {"architectures": ["LlamaForCausalLM"]},
    "able": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "hybrid": {"architectures": ["TTHybridProbeForCausalLM"]},
    "able-hybrid": {"architectures": ["TTAbleHybridProbeForCausalLM"]},
    "lanes": {"architectures": ["MistralForCausalLM"], "model_type": "mistral"},
    "experts in lanes": {"architectures": ["MistralForCausalLM"], "num_local_experts": 8},
    "made for T3K": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "unknown": {"architectures": ["LamaForCausalLM"]},
    "float32": {"architectures": ["LlamaForCausalLM"], "dtype": "float32"},
    "float16": {"architectures": ["LlamaForCausalLM"], "dtype": "float16"},
    "experts": {"architectures": ["LlamaForCausalLM"], "num_local_experts": 8},
}
NO_CACHING = "INFO prefix caching is off: TTLlamaForCausalLM does not declare supports_prefix_caching"
NO_ASYNC = "INFO async scheduling is off: TTLlamaForCausalLM does not declare supports_async_decode"
NO_CHUNKS = (
    "INFO chunked prefill is off: TTLlamaForCausalLM does not declare supports_chunked_prefill; "
    "max_num_batched_tokens is raised from 2048 to 4096, so that a whole prompt fits into a step"
)

RELEASED_FLAGS = {
    "released: caching off": "--no-enable-prefix-caching --block-size 64 --max-num-seqs 32 --max-model-len 4096 "
    "--max-num-batched-tokens 4096",
    "released: chunks": "--enable-chunked-prefill --long-prefill-token-threshold 512 --block-size 32 --max-num-seqs 1",
    "released: logprobs": "--max-logprobs -1 --revision main --seed 9472",
    "released: structured": '--structured-outputs-config {"backend":"xgrammar"}',
    "released: generation": '--override-generation-config {"temperature":0.6} --trust-remote-code',
    "released: images": '--limit-mm-per-prompt {"image":1} --max-num-seqs 256',
    "released: options": '--additional-config {"tt":{"dispatch_core_axis":"col","sample_on_device_mode":"all",'
    '"fabric_config":"FABRIC_1D_RING","worker_l1_size":1344544,"trace_region_size":220000000}}',
    "released: no options": '--additional-config {"tt":{}}',
    "released: passthrough": '--additional-config {"tt":{"env_passthrough":["DEEPSEEK_V3_HF_MODEL"],'
    '"fabric_max_packet_payload_size_bytes":8192,"fabric_reliability_mode":"RELAXED_INIT","trace_mode":"none"}}',
}
RELEASED_ENV = {
    "ARCH_NAME": "wormhole_b0",
    "VLLM_RPC_TIMEOUT": "900000",
    "VLLM_TARGET_DEVICE": "tt",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "MESH_DEVICE": "N300",
    "TT_MESH_GRAPH_DESC_PATH": "/opt/tt-metal/mesh.textproto",
}

GALAXY = {"env": {"TT_EMULATE": "TG", "MESH_DEVICE": "TG"}}
CASES = {
    "plain": ("plain", ""),
    "able": ("able", ""),
    "able declining": ("able", "--no-enable-chunked-prefill --no-enable-prefix-caching --no-async-scheduling"),
    "further server": ("plain", "", {"servers": 2}),
    "tiny budget": ("plain", "--max-num-batched-tokens 512 --max-num-seqs 8 --long-prefill-token-threshold 128"),
    "automatic length": ("plain", "--max-model-len -1 --max-num-seqs 4"),
    "hybrid": ("hybrid", ""),
    "hybrid caching": ("hybrid", "--enable-prefix-caching"),
    "hybrid pages": ("hybrid", "--enable-prefix-caching --mamba-block-size 256"),
    "hybrid of large pages": ("hybrid", "--block-size 128"),
    "able hybrid": ("able-hybrid", "--enable-prefix-caching"),
    "float32": ("float32", ""),
    "float32 asked": ("float32", "--dtype float32"),
    "float16": ("float16", ""),
    "by override": ("unknown", '--hf-overrides {"architectures":["TTQwen2ForCausalLM"]}'),
    "another mesh": ("made for T3K", "", {"env": {"MESH_DEVICE": "N300"}}),
    "mesh by name": ("plain", "--max-num-seqs 16", {"env": {"MESH_DEVICE": "T3K"}}),
    "mesh by grid": ("plain", "--max-num-seqs 16", {"env": {"MESH_DEVICE": "(1,2)"}}),
    "device sampling": (
        "able",
        (
            "--additional-config.tt.sample_on_device_mode all --additional-config.tt.trace_region_size 4k "
            "--additional-config.tt.enable_model_warmup false"
        ),
    ),
    "device sampling undeclared": ("plain", "--additional-config.tt.sample_on_device_mode decode_only"),
    "lanes": ("lanes", "--data-parallel-size 4 --max-num-seqs 8 --async-scheduling", GALAXY),
    "lanes in underscores": ("lanes", "--data_parallel_size 4 --max_num_seqs 8", GALAXY),
    "lanes by option": ("lanes", "--additional-config.tt.lanes 4 --max-num-seqs 8", GALAXY),
    "lanes twice": ("lanes", "-dp 4 --additional-config.tt.lanes 4 --max-num-seqs 8", GALAXY),
    "lanes of experts": ("experts in lanes", "-dp 4 --max-num-seqs 8", GALAXY),
    "lanes of a further server": ("lanes", "-dp 4 --max-num-seqs 8", GALAXY | {"servers": 4}),
    "engines": ("able", "--data-parallel-size 2 --max-num-seqs 8", {"env": {"TT_EMULATE": "2xT3K"}}),
    "engines of a further server": ("able", "-dp 2 --max-num-seqs 8", {"env": {"TT_EMULATE": "2xT3K"}, "servers": 2}),
    "triton": ("plain", "", {"env": {"CUDA_VISIBLE_DEVICES": ""}}),
    "tensor parallel": ("plain", "-tp 2"),
    "pipeline parallel": ("plain", "-pp 2"),
    "half a board": ("plain", "--data-parallel-size 2"),
    "uneven lanes": ("lanes", "--data-parallel-size 3", GALAXY),
    "two numbers of lanes": ("lanes", "-dp 4 --additional-config.tt.lanes 2", GALAXY),
    "no lanes": ("able", "--additional-config.tt.lanes 2", GALAXY),
    "experts data parallel": ("experts", "--data-parallel-size 2"),
    "lora": ("plain", "--enable-lora"),
    "speculation": (
        "plain",
        '--speculative-config {"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":3}',
    ),
    "runner v2": ("plain", "", {"env": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}),
    "bad mesh": ("plain", "", {"env": {"MESH_DEVICE": "N30"}}),
    "bad emulation": ("plain", "", {"env": {"TT_EMULATE": "n300"}}),
    "bad option": ("plain", "--additional-config.tt.trace_mod none"),
    "quoted bool": ("plain", "--additional-config.tt.enable_model_warmup False"),
    "unknown": ("unknown", ""),
    "retired": ("plain", '--override-tt-config {"trace_mode":"all"}'),
    "retired dotted": ("plain", "--plugin-config.tt.trace_mode all"),
    **{name: ("able", flags, {"env": RELEASED_ENV}) for name, flags in RELEASED_FLAGS.items()},
}
SETTLED = [name for name in CASES if name not in list(CASES)[list(CASES).index("tensor parallel") :]] + [
    *RELEASED_FLAGS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("settle")
    for name, (architecture, capabilities, *more) in BUNDLES.items():
        bundle = root / "bundles" / name
        bundle.mkdir(parents=True)
        metadata = {"arch": architecture, "main_class": "adapter:Model"} | dict(*more)
        (bundle / "vllm_metadata.json").write_text(json.dumps(metadata))
        (bundle / "adapter.py").write_text(f"class Model:\n    model_capabilities = {capabilities!r}\n")
    for name, config in MODELS.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(CONFIG | config))
    return root


@pytest.fixture(scope="module")
def results(folder):
    cases = {
        name: {"flags": ["--model", str(folder / model), *flags.split()], **dict(*more)}
        for name, (model, flags, *more) in CASES.items()
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(cases),
        env=os.environ
        | {
            "EXTRA_MODELS_DIR": str(folder / "bundles"),
            "TT_VLLM_BUILTIN_MODELS": "0",
            # vLLM would take the empty value for a GPU build
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("RESULTS ")[2])


def serving(architecture, paths, mesh="all devices of an emulated N300", rows=256, sampling="sampling on the host"):
    requests = rows if isinstance(rows, str) else f"one engine, {rows} requests at once"
    return (
        f"INFO Serving {architecture} on {mesh}: {requests}, at most 4096 tokens each, 64 tokens a page; {paths}, "
        f"decode interleave on, traces all, {sampling}"
    )


OFF = "prefix caching off, chunked prefill off, async scheduling off"
OVERLAPS = "prefix caching on, chunked prefill on, async scheduling on"
ON = f"{OVERLAPS} (no decode overlaps another: sampling on the host)"


@pytest.mark.parametrize("name", SETTLED)
def test_settles_once_and_for_all(results, name):
    result = results[name]
    assert "error" not in result, result["error"]
    assert result["again"], "a second run of the hook in this process changed something"
    assert result["at_the_engine"], "the run at the end of an engine's start changed something"
    assert result["lines_again"] == []
    lanes = result["settled"]["lanes"] > 1
    scheduler = "vllm_tt.scheduler.lanes.TTLaneCoordinator" if lanes else "vllm_tt.scheduler.phase.TTScheduler"
    assert result["classes"] == ["vllm_tt.worker.worker.TTWorker", scheduler]
    assert result["executor"] == "uni"
    assert not result["v2"]
    assert not result["triton"]


IN_LANES = serving(
    "TTMistralForCausalLM",
    ON,
    mesh="TG (8x4) of an emulated TG",
    rows="one engine, 4 lanes x 8 = 32 requests at once",
)


LINES = {
    "plain": [NO_CACHING, NO_ASYNC, NO_CHUNKS, serving("TTLlamaForCausalLM", OFF)],
    "able": [serving("TTQwen2ForCausalLM", ON)],
    "able declining": [serving("TTQwen2ForCausalLM", OFF)],
    "further server": [],
    "lanes of a further server": [],
    "engines of a further server": [],
    "lanes": [IN_LANES],
    "lanes in underscores": [IN_LANES],
    "lanes by option": [IN_LANES],
    "lanes twice": [IN_LANES],
    "lanes of experts": [IN_LANES],
    "engines": [
        serving(
            "TTQwen2ForCausalLM",
            ON,
            mesh="all devices of an emulated 2xT3K",
            rows="2 engines x 8 = 16 requests at once on the devices 0,1,2,3 and 4,5,6,7, a 2x4 mesh each",
        )
    ],
    "by override": [serving("TTQwen2ForCausalLM", ON)],
    "another mesh": [
        "WARNING bundle made for T3K was made for T3K; this mesh is N300",
        serving("TTQwen3ForCausalLM", ON, mesh="N300 (1x2) of an emulated N300"),
    ],
    "mesh by name": [
        NO_CACHING,
        NO_ASYNC,
        NO_CHUNKS,
        serving("TTLlamaForCausalLM", OFF, mesh="T3K (1x8) of an emulated N300", rows=16),
    ],
    "mesh by grid": [
        NO_CACHING,
        NO_ASYNC,
        NO_CHUNKS,
        serving("TTLlamaForCausalLM", OFF, mesh="1x2 of an emulated N300", rows=16),
    ],
    "device sampling": [
        serving("TTQwen2ForCausalLM", OVERLAPS, sampling="sampling on the device (sample_on_device_mode all)")
    ],
    "device sampling undeclared": [
        NO_CACHING,
        NO_ASYNC,
        NO_CHUNKS,
        (
            "WARNING sample_on_device_mode decode_only is off: "
            "TTLlamaForCausalLM does not declare supports_sample_on_device"
        ),
        serving("TTLlamaForCausalLM", OFF),
    ],
    "automatic length": [
        NO_CACHING,
        NO_ASYNC,
        NO_CHUNKS,
        serving("TTLlamaForCausalLM", OFF, rows=4).replace("4096 tokens", "4096 tokens or what the KV cache holds"),
    ],
    "tiny budget": [
        NO_CACHING,
        NO_ASYNC,
        NO_CHUNKS.replace("2048", "512") + "; long_prefill_token_threshold 128 is dropped, as it would split prompts",
        serving("TTLlamaForCausalLM", OFF, rows=8),
    ],
}


@pytest.mark.parametrize("name", LINES)
def test_says_what_it_changed_and_what_it_serves(results, name):
    assert results[name]["lines"] == LINES[name]


LANES = {"data_parallel": [1, 1], "rows": 8, "executor": "uni"}
VALUES = {
    "lanes": LANES,
    "lanes by option": LANES,
    "lanes of experts": LANES,
    "lanes of a further server": LANES,
    "engines": {"data_parallel": [2, 2], "rows": 8, "executor": "uni"},
    "engines of a further server": {"data_parallel": [2, 2]},
    "plain": {"prefix_caching": False, "chunked": False, "async": False, "budget": 4096, "concurrent_batches": 1},
    "able": {"prefix_caching": True, "chunked": True, "async": True, "budget": 2048, "concurrent_batches": 2},
    "able declining": {"prefix_caching": False, "chunked": False, "async": False, "budget": 4096},
    "tiny budget": {"budget": 4096, "threshold": 0, "rows": 8},
    "automatic length": {"max_model_len": 4096, "budget": 4096},
    "hybrid": {"prefix_caching": False, "mamba_block_size": 4096, "mamba_cache_mode": "none", "block_size": 64},
    "hybrid of large pages": {"prefix_caching": False, "block_size": 128, "mamba_cache_mode": "none"},
    "hybrid caching": {"prefix_caching": False, "mamba_block_size": 4096, "mamba_cache_mode": "none"},
    "hybrid pages": {"prefix_caching": False, "mamba_block_size": 4096, "mamba_cache_mode": "none"},
    "able hybrid": {"prefix_caching": True, "mamba_block_size": 64, "mamba_cache_mode": "align", "block_size": 64},
    "float32": {"dtype": "torch.bfloat16"},
    "float32 asked": {"dtype": "torch.float32"},
    "float16": {"dtype": "torch.bfloat16"},
    "device sampling": {
        "tt": {"sample_on_device_mode": "all", "trace_region_size": 4000, "enable_model_warmup": False}
    },
    "device sampling undeclared": {"tt": {"sample_on_device_mode": None}},
    "released: caching off": {"block_size": 64, "rows": 32, "prefix_caching": False},
    "released: chunks": {"block_size": 32, "rows": 1, "threshold": 512, "chunked": True},
    "released: logprobs": {"max_logprobs": 20},
}


@pytest.mark.parametrize("name", VALUES)
def test_settles_on_values(results, name):
    assert {key: results[name][key] for key in VALUES[name]} == VALUES[name]


ERRORS = {
    "tensor parallel": "--tensor-parallel-size 2 is not available: one worker drives the whole mesh, and the model "
    "spreads itself over it. Choose the mesh with MESH_DEVICE, for example MESH_DEVICE=T3K or "
    'MESH_DEVICE="(1,2)", and leave out --tensor-parallel-size.',
    "pipeline parallel": "--pipeline-parallel-size 2 is not available: one worker drives the whole mesh, and the model "
    "spreads itself over it. Choose the mesh with MESH_DEVICE, for example MESH_DEVICE=T3K or "
    'MESH_DEVICE="(1,2)", and leave out --pipeline-parallel-size.',
    "half a board": "--data-parallel-size 2 splits the 2x1 mesh inside the board with device id 0: a process opens a "
    "board as a whole. Use fewer engines, or a mesh (MESH_DEVICE) whose equal parts are whole boards.",
    "uneven lanes": "3 lanes do not divide the 32 chips of the 8x4 mesh, of which each lane gets an equal part. Use 1, "
    "2, 4, 8, 16 or 32 lanes, or another mesh (MESH_DEVICE).",
    "two numbers of lanes": "tt.lanes 2 and --data-parallel-size 4 disagree: with TTMistralForCausalLM, both are the "
    "number of lanes of one engine. Leave one of them out.",
    "no lanes": "tt.lanes 2 is not available: TTQwen2ForCausalLM does not declare supports_lanes, so an instance of it "
    "serves one batch. Leave it out and use --max-num-seqs for a larger batch, or --data-parallel-size for several "
    "engines.",
    "experts data parallel": "--data-parallel-size 2 is not available for {folder}/experts, a mixture of experts: vLLM "
    "runs the ranks of such a model in lock step, which one engine on one mesh does not need. Leave out "
    "--data-parallel-size; the model spreads its experts over the mesh that MESH_DEVICE names.",
    "lora": "--enable-lora is not available: adapters take one set of weights. Merge the LoRA into the checkpoint and "
    "serve the result.",
    "speculation": "Speculative decoding (ngram) is not available. Leave out --speculative-config.",
    "runner v2": "VLLM_USE_V2_MODEL_RUNNER=1 is not available: the worker implements vLLM's V1 runner contract. "
    "Unset it or set it to 0.",
    "bad mesh": "MESH_DEVICE='N30' is not valid: expected one of N150, P100, P150, N300, P300, P150x2, N150x4, P150x4, "
    'P300x2, T3K, P150x8, TG, BH-Galaxy, or a grid such as "(2,4)". Unset it for the default (one row of all '
    "devices).",
    "bad emulation": "TT_EMULATE='n300' is not valid: expected one of N150, P100, P150, N300, P300, P150x2, N150x4, "
    "P150x4, P300x2, T3K, P150x8, TG, BH-Galaxy, 2xT3K. Unset it for the default (real devices).",
    "quoted bool": "additional_config[\"tt\"]['enable_model_warmup'] is the string 'False': expected true or false. "
    "Write false without quotes and in lower case: --additional-config.tt.enable_model_warmup false",
}


@pytest.mark.parametrize("name", ERRORS)
def test_refuses(results, folder, name):
    error = results[name]["error"].partition("Value error, ")[2].partition(" [type=")[0] or results[name]["error"]
    assert error == ERRORS[name].replace("{folder}", str(folder))


def test_names_the_nearest_option(results):
    assert (
        "additional_config[\"tt\"] has no option 'trace_mod'. Did you mean 'trace_mode'?"
        in results["bad option"]["error"]
    )


def test_an_unknown_architecture_is_the_cause(results):
    assert "No Tenstorrent model serves LamaForCausalLM." in results["unknown"]["error"]
    assert "TTLlamaForCausalLM" in results["unknown"]["error"]


@pytest.mark.parametrize(
    ("name", "option"), [("retired", "--override-tt-config"), ("retired dotted", "--plugin-config")]
)
def test_a_retired_option_gets_one_message(results, name, option):
    assert results[name] == {
        "exit": 2,
        "stderr": (
            f'vllm serve: error: {option} is retired. Put the options under the key "tt" of --additional-config, '
            'for example --additional-config \'{"tt": {"trace_mode": "all"}}\', or give them one by one: '
            "--additional-config.tt.trace_mode all\n"
        ),
    }
