"""Configures servers from command lines, in a process of its own: cases on stdin, results on stdout, both JSON.

A case: "flags" (the command line after the model), "env" (for this case alone), "servers" (the
number of API servers; this is then one of them). A result: the settled values, the log lines, or the error.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import sys

import torch
from snapshot import snapshot
from vllm import ModelRegistry
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins
from vllm.triton_utils import HAS_TRITON
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser


class Hybrid(torch.nn.Module):
    """What vLLM sees of a model with recurrent layers."""

    is_hybrid = True

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()

    def embed_input_ids(self, input_ids): ...

    def forward(self, input_ids, positions): ...

    def compute_logits(self, hidden_states): ...

    @classmethod
    def get_mamba_state_shape_from_config(cls, vllm_config): ...

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config): ...


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def take(self):
        taken, self.lines = self.lines, []
        return taken


def configure(case, lines):
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(prog="vllm serve"))
    given = parser.parse_args(["--skip-tokenizer-init", *case["flags"]])
    assert given.api_server_count == 1
    arguments = AsyncEngineArgs.from_cli_args(given)
    if servers := case.get("servers"):
        arguments._api_process_count, arguments._api_process_rank = servers, servers - 1
    return arguments.create_engine_config(UsageContext.OPENAI_API_SERVER), lines.take()


def describe(config):
    model, cache, scheduler = config.model_config, config.cache_config, config.scheduler_config
    return {
        "architectures": model.hf_config.architectures,
        "dtype": str(model.dtype),
        "max_model_len": model.max_model_len,
        "max_logprobs": model.max_logprobs,
        "quantization": model.quantization,
        "block_size": cache.block_size,
        "prefix_caching": cache.enable_prefix_caching,
        "mamba_block_size": cache.mamba_block_size,
        "mamba_cache_mode": cache.mamba_cache_mode,
        "chunked": scheduler.enable_chunked_prefill,
        "async": scheduler.async_scheduling,
        "budget": scheduler.max_num_batched_tokens,
        "threshold": scheduler.long_prefill_token_threshold,
        "rows": scheduler.max_num_seqs,
        "classes": [config.parallel_config.worker_cls, scheduler.scheduler_cls],
        "data_parallel": [config.parallel_config.data_parallel_size, config.parallel_config.data_parallel_size_local],
        "settled": config.additional_config["_vllm_tt"],
        "executor": config.parallel_config.distributed_executor_backend,
        "v2": config.use_v2_model_runner,
        "triton": HAS_TRITON,
        "concurrent_batches": config.max_concurrent_batches,
        "tt": config.additional_config.get("tt"),
    }


def run(case, lines):
    """One case; the configuration is settled again, as in the parent, and in an engine that received it."""
    try:
        config, said = configure(case, lines)
    except SystemExit as exit_:
        return {"exit": exit_.code}
    except Exception as error:  # noqa: BLE001
        lines.take()
        return {"error": str(error), "kind": type(error).__name__}
    result = describe(config) | {"lines": said}
    once = snapshot(config)
    current_platform.check_and_update_config(config)
    result["again"] = snapshot(config) == once
    received = pickle.loads(pickle.dumps(config))
    received.__post_init__()
    result["at_the_engine"] = snapshot(received) == once
    result["lines_again"] = lines.take()
    return result


def main():
    load_general_plugins()
    # in place of the facades, which stand for plain decoders
    ModelRegistry.register_model("TTHybridProbeForCausalLM", Hybrid)
    ModelRegistry.register_model("TTAbleHybridProbeForCausalLM", Hybrid)
    lines = Lines()
    lines.setLevel(logging.INFO)
    ours = logging.getLogger("vllm.tt.platform")
    ours.setLevel(logging.INFO)
    ours.addHandler(lines)
    results = {}
    for name, case in json.load(sys.stdin).items():
        before = dict(os.environ)
        os.environ.update(case.get("env", {}))
        stderr = io.StringIO()
        with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(stderr):
            results[name] = run(case, lines) | {"stderr": stderr.getvalue()}
        os.environ.clear()
        os.environ.update(before)
    print("RESULTS", json.dumps(results))


if __name__ == "__main__":
    main()
