"""A small Llama checkpoint, and adapters on a bench without a mesh."""

import importlib.util
from pathlib import Path

import pytest
import tiny_llama
import torch
from tools.tiny_models.write import write

from vllm_tt.conformance.bench import Bench
from vllm_tt.conformance.loading import Subject, read_config
from vllm_tt.conformance.request import Request
from vllm_tt.conformance.rig import Rig, Sizes
from vllm_tt.contract import Capabilities

BUNDLES = Path(__file__).parents[3] / "bundles"


def adapter_of(bundle):
    """The module of a shipped bundle's adapter."""
    path = BUNDLES / bundle / "generator_vllm.py"
    spec = importlib.util.spec_from_file_location(f"{bundle.replace('-', '_')}_to_break", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return tiny_llama.write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def llama_host():
    return adapter_of("llama-host").LlamaForCausalLM


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


@pytest.fixture(scope="session")
def gemma_bench(tmp_path_factory):
    """``gemma_bench(mixin, max_seq_len=64)``: Gemma's adapter with a mixin in front, over layers of windows."""
    config = read_config(str(write("gemma3", tmp_path_factory.mktemp("gemma"))))
    reference = adapter_of("gemma3-host").Gemma3ForCausalLM

    def make(mixin, max_seq_len=64):
        bases = (reference,) if mixin is object else (mixin, reference)
        adapter_class = type(mixin.__name__, bases, {})
        capabilities = Capabilities.from_mapping(adapter_class.model_capabilities, "test")
        sizes = Sizes(
            slots=4, page_size=8, pages=33, max_seq_len=max_seq_len, vocab_size=320, kv_shape=(33, 2, 8, 32), layers=6
        )
        subject = Subject(
            adapter_class=adapter_class,
            capabilities=capabilities,
            config=config,
            dtype=torch.float32,
            sizes=sizes,
            folder=BUNDLES / "gemma3-host",
            chips=1,
            request=Request(folder="gemma3-host", model="tiny"),
        )
        return Bench(subject.rig(subject.load(None)), 1e-3)

    return make


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Models this small only wait for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
