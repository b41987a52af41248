from __future__ import annotations

import pytest

from vllm_tt.platform.refusals import REFUSALS, refuse_request


def lora():
    from vllm.config import LoRAConfig

    return LoRAConfig()


def ngram():
    from vllm.config import SpeculativeConfig

    return SpeculativeConfig(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3)


def connector(kind):
    import vllm.config

    return getattr(vllm.config, kind)()


def parallel_size(flag, size):
    return (
        f"{flag} {size} is not available: one worker drives the whole mesh, and the model spreads itself over it. "
        f'Choose the mesh with MESH_DEVICE, for example MESH_DEVICE=T3K or MESH_DEVICE="(1,{size})", '
        f"and leave out {flag}."
    )


def load_balancing(flag):
    return (
        f"{flag} is not available: a server runs all its engines itself. Start independent servers, each with its own "
        "TT_VISIBLE_DEVICES and --port and without --data-parallel options, and balance the load in front of them."
    )


CASES = {
    "tensor parallel": (
        {"parallel": {"tensor_parallel_size": 2}},
        parallel_size("--tensor-parallel-size", 2),
    ),
    "pipeline parallel": (
        {"parallel": {"pipeline_parallel_size": 4}},
        parallel_size("--pipeline-parallel-size", 4),
    ),
    "nodes": (
        {"parallel": {"nnodes": 2}},
        (
            "--nnodes 2 is not available: a server drives the devices of one host. Start a server on each host and "
            "balance the load in front of them."
        ),
    ),
    "external load balancing": (
        {"parallel": {"data_parallel_size": 2, "data_parallel_external_lb": True}},
        load_balancing("--data-parallel-external-lb (or --data-parallel-rank)"),
    ),
    "hybrid load balancing": (
        {"parallel": {"data_parallel_size": 2, "data_parallel_hybrid_lb": True}},
        load_balancing("--data-parallel-hybrid-lb (or --data-parallel-start-rank)"),
    ),
    "engines elsewhere": (
        {"parallel": {"data_parallel_size": 4, "data_parallel_size_local": 2}},
        load_balancing("--data-parallel-size-local 2 of 4"),
    ),
    "engines in Ray": (
        {
            "parallel": {
                "data_parallel_size": 2,
                "data_parallel_size_local": 2,
                "data_parallel_backend": "ray",
                "distributed_executor_backend": "uni",
            }
        },
        load_balancing("--data-parallel-backend ray"),
    ),
    "speculation": (
        {"speculative_config": ngram},
        "Speculative decoding (ngram) is not available. Leave out --speculative-config.",
    ),
    "lora": (
        {"lora_config": lora},
        (
            "--enable-lora is not available: adapters take one set of weights. Merge the LoRA into the checkpoint and "
            "serve the result."
        ),
    ),
    "pooling": (
        {"model": {"runner": "pooling", "convert": "embed"}},
        (
            "Pooling models (embedding, classification, reward) are not available: {model} was configured with the "
            "runner 'pooling'. Serve a model that generates text, and leave out --runner and --convert."
        ),
    ),
    "encoder-decoder": (
        {"model": {"config": {"is_encoder_decoder": True}}},
        "Encoder-decoder models are not available: {model} is a TTPolicyProbeForCausalLM. Serve a decoder-only model.",
    ),
    "prompt embeds": (
        {"model": {"enable_prompt_embeds": True}},
        (
            "--enable-prompt-embeds is not available: adapters take token ids. Leave it out and send the prompt as "
            "text or token ids."
        ),
    ),
    "kv offloading": (
        {"cache": {"kv_offloading_size": 1.0}},
        "--kv-offloading-size is not available: the KV cache stays on the mesh. Leave it out.",
    ),
    "encoder cache transfer": (
        {"ec_transfer_config": lambda: connector("ECTransferConfig")},
        "--ec-transfer-config is not available: the KV cache stays on the mesh. Leave it out.",
    ),
    "KV cache in fp8": (
        {"cache": {"cache_dtype": "fp8"}},
        (
            "--kv-cache-dtype fp8 is not available: the adapter allocates the cache and chooses a device's formats "
            "itself. Use --kv-cache-dtype auto or bfloat16."
        ),
    ),
    "half": (
        {"model": {"dtype": "float16"}},
        (
            "--dtype float16 is not available: Tenstorrent devices compute in bfloat16 and float32. "
            "Use --dtype bfloat16, float32 or auto."
        ),
    ),
    "step log that is a folder": (
        {"additional_config": {"tt": {"step_log": "/"}}},
        "tt.step_log / cannot be written: / is a folder. Name a file in a folder that the server may write.",
    ),
    "step log": (
        {"additional_config": {"tt": {"step_log": "/nowhere/at/all/steps.jsonl"}}},
        (
            "tt.step_log /nowhere/at/all/steps.jsonl cannot be written: /nowhere/at/all is not a folder. Name a "
            "file in a folder that the server may write."
        ),
    ),
}


def check(config):
    for refuse in REFUSALS:
        refuse(config)


@pytest.mark.parametrize(("parts", "message"), CASES.values(), ids=CASES)
def test_refuses(make_config, parts, message):
    config = make_config(**{name: part() if callable(part) else part for name, part in parts.items()})
    with pytest.raises(ValueError) as caught:
        check(config)
    assert str(caught.value) == message.replace("{model}", config.model_config.model)


def test_refuses_the_v2_runner(make_config, monkeypatch):
    config = make_config()
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with pytest.raises(ValueError) as caught:
        check(config)
    assert str(caught.value) == (
        "VLLM_USE_V2_MODEL_RUNNER=1 is not available: the worker implements vLLM's V1 runner contract. "
        "Unset it or set it to 0."
    )


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float32"])
def test_passes_what_can_be_served(make_config, dtype):
    check(make_config(model={"dtype": dtype, "config": {"num_local_experts": 8}}))


@pytest.mark.parametrize("count", [0, 3, -1])
def test_refuses_prompt_logprobs(count):
    from vllm import SamplingParams

    with pytest.raises(ValueError) as caught:
        refuse_request(SamplingParams(prompt_logprobs=count))
    assert str(caught.value) == (
        f"prompt_logprobs={count} is not available: prefill returns the logits of the last prompt token alone. "
        "Leave it out (in the completions API, do not ask for echo together with logprobs); logprobs of generated "
        "tokens are available."
    )


def test_passes_a_request_with_logprobs():
    from vllm import SamplingParams

    refuse_request(SamplingParams(logprobs=5, n=2, seed=1))
