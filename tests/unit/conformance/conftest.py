"""A small Llama checkpoint, and adapters on a bench without a mesh."""

import importlib.util
from pathlib import Path

import pytest
import tiny_llama
import torch

from vllm_tt.conformance.bench import Bench
from vllm_tt.conformance.rig import Rig, Sizes
from vllm_tt.contract import Capabilities

LLAMA_HOST = Path(__file__).parents[3] / "bundles" / "llama-host"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return tiny_llama.write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def llama_host():
    spec = importlib.util.spec_from_file_location("llama_host_to_break", LLAMA_HOST / "generator_vllm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LlamaForCausalLM


@pytest.fixture(scope="session")
def bench_of(tiny):
    """``bench_of(adapter class, lanes=1)``: four slots in all, pages of eight tokens, float32."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(tiny)

    def make(adapter_class, lanes=1):
        kv_shape = (33, 2, 8, 32)
        sizes = Sizes(
            slots=4, page_size=8, pages=33, max_seq_len=64, vocab_size=256, kv_shape=kv_shape, layers=2, lanes=lanes
        )
        adapter = adapter_class.initialize_vllm_model(
            config, None, 4, max_seq_len=64, tt_data_parallel=lanes, optimizations=None
        )
        capabilities = Capabilities.from_mapping(adapter_class.model_capabilities, "test")
        cache = adapter.allocate_kv_cache(sizes.kv_shape, torch.float32, 2)
        return Bench(Rig(adapter, cache, sizes, capabilities), 1e-3)

    return make


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Models this small only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
