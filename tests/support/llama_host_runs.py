"""One workload on the reference adapter through vLLM's engine, configuration by configuration: results as JSON.

A process of its own: the models that a process serves are found once, and other tests serve the oracle.
"""

import json
import random
import sys
from pathlib import Path

import tiny_llama
from engine import engine

VOCAB = 256
REQUESTS = {
    "greedy": {},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.8},
    "repetition": {"repetition_penalty": 1.4},
    "logprobs": {"logprobs": 5},
    "penalties and logprobs": {"logprobs": 2, "presence_penalty": 1.0},
    "bias": {"logit_bias": {7: 3.0, 9: -100.0}},
    "seeded": {"temperature": 1.5, "seed": 11},
    "seeded and narrowed": {"temperature": 1.2, "top_k": 9, "top_p": 0.8, "seed": -3},
    "seeded with logprobs": {"temperature": 1.2, "top_k": 9, "seed": 5, "logprobs": 4},
    "seeded and penalised": {"temperature": 0.9, "frequency_penalty": 0.5, "seed": 2**40 + 1},
    "drawn": {"temperature": 1.0},
}
ON_DEVICE = {"additional_config": {"tt": {"sample_on_device_mode": "all"}}}
RUNS = {
    "host": {"async_scheduling": False},
    "device": {"async_scheduling": False, **ON_DEVICE},
    "device, async": {"async_scheduling": True, **ON_DEVICE},
    "device, async, few slots": {"async_scheduling": True, "max_num_seqs": 3, **ON_DEVICE},
    "device, async, chunks": {"async_scheduling": True, "max_num_batched_tokens": 32, **ON_DEVICE},
    "device, async, preempted": {"async_scheduling": True, "num_gpu_blocks_override": 22, **ON_DEVICE},
}


def run(model, options, backwards):
    rng = random.Random(5)
    prompts = {name: [rng.randrange(3, VOCAB) for _ in range(rng.randint(5, 70))] for name in REQUESTS}
    sizes = {"max_model_len": 128, "max_num_seqs": 8, "block_size": 16, "max_num_batched_tokens": 256}
    with engine(model, dtype="float32", **sizes | options) as running:
        for name in reversed(REQUESTS) if backwards else REQUESTS:
            running.add(name, prompts[name], max_tokens=40, **REQUESTS[name])
            running.step()
        running.run()
        found = {name: [[float(x) for x in one.logprobs[0]] for one in rows] for name, rows in running.logprobs.items()}
        return {"tokens": running.tokens, "logprobs": found, "counters": running.worker.counters()}


if __name__ == "__main__":
    checkpoint = tiny_llama.write_checkpoint(Path(sys.argv[1]) / "model")
    results = {name: run(checkpoint, options, "slots" in name) for name, options in RUNS.items()}
    (Path(sys.argv[1]) / "results.json").write_text(json.dumps(results))
