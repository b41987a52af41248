"""A real vLLM configuration over a folder that holds nothing but a model's config.json."""

import json

import torch
from tiny_model import CONFIG

ARCHITECTURE = "TTSamplingProbeForCausalLM"


class Facade(torch.nn.Module):
    """The shape by which vLLM knows a model that generates text."""

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()

    def embed_input_ids(self, input_ids): ...

    def forward(self, input_ids, positions): ...

    def compute_logits(self, hidden_states): ...


def probe_config(folder, *, vocab_size, rows, **options):
    """For a model of ``vocab_size`` tokens served in ``rows`` rows; ``options`` are the ModelConfig's."""
    from vllm import ModelRegistry
    from vllm.config import ModelConfig, SchedulerConfig, VllmConfig

    ModelRegistry.register_model(ARCHITECTURE, Facade)
    config = CONFIG | {"architectures": [ARCHITECTURE], "vocab_size": vocab_size}
    (folder / "config.json").write_text(json.dumps(config))
    made = VllmConfig(scheduler_config=SchedulerConfig(max_model_len=4096, is_encoder_decoder=False, max_num_seqs=rows))
    made.model_config = ModelConfig(model=str(folder), skip_tokenizer_init=True, **options)
    return made
