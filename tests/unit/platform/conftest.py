"""Real vLLM configurations over a folder that holds nothing but a model's config.json."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_model import CONFIG

ARCHITECTURE = "TTPolicyProbeForCausalLM"


class Facade(torch.nn.Module):
    """The shape by which vLLM knows a model that generates text."""

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()

    def embed_input_ids(self, input_ids): ...

    def forward(self, input_ids, positions): ...

    def compute_logits(self, hidden_states): ...


@pytest.fixture(scope="session", autouse=True)
def architecture():
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, Facade)


@pytest.fixture
def make_model(tmp_path):
    def make(*, config=None, **options):
        from vllm.config import ModelConfig

        (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"architectures": [ARCHITECTURE]} | (config or {})))
        return ModelConfig(model=str(tmp_path), skip_tokenizer_init=True, **options)

    return make


@pytest.fixture
def make_config(make_model):
    """A VllmConfig that the platform's hooks have not seen: they pass over one without a model."""

    def make(*, model=None, cache=None, scheduler=None, parallel=None, lora_config=None, **rest):
        from vllm.config import CacheConfig, ParallelConfig, SchedulerConfig, VllmConfig

        config = VllmConfig(
            cache_config=CacheConfig(**(cache or {})),
            scheduler_config=SchedulerConfig(max_model_len=4096, is_encoder_decoder=False, **(scheduler or {})),
            parallel_config=ParallelConfig(**(parallel or {})),
            **rest,
        )
        config.model_config = make_model(**(model or {}))
        config.lora_config = lora_config  # vLLM checks one against the model
        return config

    return make
