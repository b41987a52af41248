"""Registers models with the real vLLM, each case in a fork of this process: cases on stdin, outcomes on stdout.

A case is ``[name of a function below, environment]``; its outcome is what the function returns, or the
text of the error it raises. Both ways JSON.
"""

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import vllm  # noqa: F401 - before anything of ours
from vllm.config import ModelConfig
from vllm.model_executor.models.registry import ModelRegistry
from vllm.plugins import load_general_plugins

UNSEEN = "vllm was asked to inspect a model in a subprocess"


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def checkpoint(architecture, model_type="llama"):
    """A model configuration of a checkpoint that declares ``architecture``, as a server makes it."""
    folder = Path(tempfile.mkdtemp())
    config = {"architectures": [architecture], "model_type": model_type, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return ModelConfig(model=str(folder), tokenizer=str(folder), skip_tokenizer_init=True, dtype="float32")


def registered():
    """What the log says and what vLLM then knows under our prefix; loading the plugins twice is loading them once."""
    seen = Lines()
    logger = logging.getLogger("vllm.tt")
    logger.addHandler(seen)
    logger.setLevel(logging.INFO)
    load_general_plugins()
    from vllm_tt.entrypoints import register

    register()
    return {"log": seen.lines, "names": sorted(name for name in ModelRegistry.models if name.startswith("TT"))}


def names_in_a_spawned_child():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(registered)["names"]


def on_another_platform():
    from vllm import platforms
    from vllm.platforms.cpu import CpuPlatform

    from vllm_tt.models.registry import register_all

    platforms.current_platform = CpuPlatform()
    before = dict(ModelRegistry.models)
    register_all()
    return ModelRegistry.models == before


def answers():
    """What vLLM says of checkpoints, with its subprocess out of reach."""
    load_general_plugins()
    from vllm_tt.models.registry import select

    subprocess.run = None
    result = {}
    for architecture, model_type in (
        ("LlamaForCausalLM", "llama"),
        ("TTLlamaForCausalLM", "llama"),
        ("NovelForCausalLM", "llama"),
        ("Qwen3ForCausalLM", "qwen3"),
    ):
        config = checkpoint(architecture, model_type)
        result[architecture] = [config.architecture, config.runner_type, config.is_multimodal_model, config.is_hybrid]
        result[architecture].append(select(config).arch)
    return result


def capabilities_of_the_good_bundle():
    load_general_plugins()
    from vllm_tt.models.registry import registry

    entry = registry().entries["TTNovelForCausalLM"]
    return [entry.capabilities().supports_async_decode, entry.load().__name__]


def left_to_vllm():
    """Which of these vLLM answers itself: hybrid, recurrent and multimodal ones."""
    load_general_plugins()
    names = (
        "JambaForCausalLM",
        "MambaForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Gemma4ForConditionalGeneration",
    )
    asked = []

    def refuse(*_args, **_options):
        asked.append(name)
        raise OSError(UNSEEN)

    subprocess.run = refuse
    for name in names:
        ModelRegistry._try_inspect_model_cls(name)
    return asked


def same_answers_as_vllm():
    """The fields, beside the name, in which a facade differs from vLLM's own class."""
    import dataclasses

    from vllm.model_executor.models import registry

    theirs = {
        name: ModelRegistry.models[name] for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM")
    }
    load_general_plugins()
    differences = {}
    for name, entry in theirs.items():
        upstream = dataclasses.asdict(registry._ModelInfo.from_model_cls(entry.load_model_cls()))
        ours = dataclasses.asdict(ModelRegistry.models[name].inspect_model_cls())
        differences[name] = [key for key in ours if ours[key] != upstream[key]]
    return differences


def unknown_architecture():
    load_general_plugins()
    return str(checkpoint("UnheardOfForCausalLM"))


def selected_with_nothing_registered():
    load_general_plugins()
    from vllm_tt.models.registry import select

    return select(checkpoint("LlamaForCausalLM")).arch


def main():
    outcomes = {}
    for number, (name, environ) in enumerate(json.load(sys.stdin)):
        with tempfile.TemporaryFile("w+") as report:
            child = os.fork()
            if child == 0:
                os.environ.update(environ)
                try:
                    outcome = globals()[name]()
                except Exception as error:  # noqa: BLE001
                    outcome = f"{type(error).__name__}: {error}"
                json.dump(outcome, report)
                report.flush()
                os._exit(0)
            os.waitpid(child, 0)
            report.seek(0)
            outcomes[number] = json.loads(report.read() or '"died"')
    sys.stdout.write("\n" + json.dumps(list(outcomes.values())))


if __name__ == "__main__":
    main()
