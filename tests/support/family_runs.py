"""Greedy requests on a family's reference bundle through vLLM's engine, configuration by configuration, as JSON.

Beside them what `transformers` generates with the same weights. A process of its own: the models that a process serves
are found once, and other tests serve the oracle.
"""

import json
import random
import sys
from pathlib import Path

from engine import engine
from tools.tiny_models.write import make

SIZES = {"max_model_len": 256, "max_num_seqs": 6, "block_size": 16, "max_num_batched_tokens": 256, "dtype": "float32"}
PAGES = {"gemma3": 52}
"""Of a tight cache, for families with several KV cache groups: each has pages of its own."""
CHUNKS = {"max_num_batched_tokens": 48}
COUNT = 40


def options(*, device=True, lanes=1, asynchronous=True, **more):
    tt = {"lanes": lanes} | ({"sample_on_device_mode": "all"} if device else {})
    return SIZES | {"async_scheduling": asynchronous, "additional_config": {"tt": tt}} | more


def runs(family):
    """Options of each engine; a tight cache holds the longest request and not many more."""
    tight = {"num_gpu_blocks_override": PAGES.get(family, 26)}
    return {
        "host": options(device=False, asynchronous=False),
        "host, async, chunks": options(device=False, **CHUNKS),
        "device": options(asynchronous=False, enable_chunked_prefill=False),
        "device, async, chunks of 7": options(long_prefill_token_threshold=7),
        "host, preempted": options(device=False, asynchronous=False, **tight),
        "device, async, preempted": options(**tight),
        "device, async, preempted, chunks, priorities": options(scheduling_policy="priority", **tight, **CHUNKS),
        "two lanes, async, preempted, chunks": options(lanes=2, **tight, **CHUNKS),
    }


def prompts(vocab_size, number=14):
    """Token ids by request; every second begins alike."""
    rng = random.Random(5)
    lengths = [rng.choice([1, 3, rng.randint(5, 60), rng.randint(60, 150)]) for _ in range(number)]
    shared, *own = ([rng.randrange(3, vocab_size) for _ in range(length)] for length in [60, *lengths])
    begun = [(shared + prompt)[: len(prompt)] if i % 2 else prompt for i, prompt in enumerate(own)]
    return {f"r{i}": prompt for i, prompt in enumerate(begun)}


def run(folder, chosen, requests):
    """Tokens and phases of one engine, and the requests that were preempted or began with cached pages."""
    rng, preempted = random.Random(7), set()
    with engine(folder, **chosen) as running:
        for name, prompt in requests.items():
            running.add(name, prompt, max_tokens=COUNT, priority=rng.randint(0, 2))
            for _ in range(rng.randint(0, 3)):
                running.step()
        while running.busy:
            running.step()
            preempted |= {one.request_id for one in running.core.scheduler.requests.values() if one.num_preemptions}
        caching = running.config.cache_config.enable_prefix_caching
        return {
            "tokens": running.tokens,
            "phases": running.phases,
            "preempted": sorted(preempted),
            "cached": sorted(name for name, start in first_starts(running.plans).items() if start),
            "prefix_caching": caching,
        }


def first_starts(plans):
    """Where each request's first chunk starts."""
    starts = {}
    for plan in plans:
        for name, start in zip(plan.req_ids, plan.starts.tolist(), strict=True):
            starts.setdefault(name, start)
    return starts


def generate(model, prompt):
    import torch

    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=COUNT, do_sample=False, eos_token_id=None)
    return out[0, len(prompt) :].tolist()


def main(folder, family):
    model, *beside = make(family)
    for part in (model, *beside):
        part.save_pretrained(folder / "model")
    requests = prompts(model.config.get_text_config().vocab_size)
    expected = {name: generate(model, prompt) for name, prompt in requests.items()}
    results = {name: run(folder / "model", chosen, requests) for name, chosen in runs(family).items()}
    (folder / "results.json").write_text(json.dumps({"expected": expected, "runs": results}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
