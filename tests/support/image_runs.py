"""Prompts with images on the Qwen2.5-VL bundle through vLLM's engine, configuration by configuration, as JSON.

Beside them what `transformers` generates with the same weights. A process of its own: the models that a process serves
are found once, and other tests serve the oracle.
"""

import json
import random
import sys
from pathlib import Path

import torch
from engine import engine
from PIL import Image
from tools.tiny_models.write import make
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

COUNT = 24
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
SIZES = {
    "max_model_len": 384,
    "max_num_seqs": 6,
    "block_size": 16,
    "max_num_batched_tokens": 384,
    "dtype": "float32",
    "skip_tokenizer_init": False,
}
TIGHT = {"num_gpu_blocks_override": 38}
"""The longest request and not many more."""
CHUNKS = {"max_num_batched_tokens": 72}
"""Hardly more than the largest image."""


def options(*, device=True, lanes=1, asynchronous=True, **more):
    tt = {"lanes": lanes} | ({"sample_on_device_mode": "all"} if device else {})
    return SIZES | {"async_scheduling": asynchronous, "additional_config": {"tt": tt}} | more


RUNS = {
    "host": options(device=False, asynchronous=False, enable_prefix_caching=False),
    "host, chunks": options(device=False, asynchronous=False, **CHUNKS),
    "device, async, chunks": options(**CHUNKS),
    "device, preempted": options(asynchronous=False, **TIGHT),
    "device, async, preempted, chunks": options(**TIGHT, **CHUNKS),
    #    "device, async, chunks of 7": options(long_prefill_token_threshold=7),
    "two lanes, async, preempted, chunks": options(lanes=2, **TIGHT, **CHUNKS),
}


def picture(rng):
    sides = [rng.randint(9, 70) for _ in range(2)]
    pixels = torch.randint(0, 256, (sides[1], sides[0], 3), dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())


def prompts(number=24):
    """Text and images: none to three a prompt, and a third of the prompts with one beginning."""
    rng = random.Random(3)
    torch.manual_seed(3)
    pictures = [picture(rng) for _ in range(6)]
    beginning = [text(rng, 21), pictures[0], text(rng, 9)]
    made = []
    for i in range(number):
        parts = [text(rng, rng.randint(1, 30))]
        for _ in range(i % 4):
            parts += [rng.choice(pictures) if rng.random() < 0.4 else picture(rng), text(rng, rng.choice([1, 3, 40]))]
        made.append([*beginning, *parts] if i % 3 == 0 else parts)
    return {f"r{i}": parts for i, parts in enumerate(made)}


def text(rng, length):
    return "".join(chr(rng.randrange(97, 123)) for _ in range(length))


def vllm_request(processor, name, parts):
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=COUNT)
    written = "".join(part if isinstance(part, str) else IMAGE for part in parts)
    prompt = {"prompt_token_ids": processor.get_tokenizer().encode(written)}
    if images := [part for part in parts if not isinstance(part, str)]:
        prompt["multi_modal_data"] = {"image": images}
    return processor.process_inputs(name, prompt, params, supported_tasks=("generate",))


def refusal(processor):
    """What is said to a request for an image larger than the server makes them, or None."""
    written = processor.get_tokenizer().encode(IMAGE)
    large = {"size": {"shortest_edge": 10_000, "longest_edge": 200_000}}
    image = {"image": [Image.new("RGB", (150, 110))]}
    prompt = {"prompt_token_ids": written, "multi_modal_data": image, "mm_processor_kwargs": large}
    try:
        processor.process_inputs("large", prompt, SamplingParams(), supported_tasks=("generate",))
    except ValueError as error:
        return str(error)


def run(folder, chosen, requests):
    """What one engine did with ``requests``, and as what they were sent to it."""
    rng, preempted = random.Random(7), set()
    with engine(folder, **chosen) as running:
        processor = InputProcessor(running.config)
        sent = {}
        for name, parts in requests.items():
            sent[name] = vllm_request(processor, name, parts)
            running.add_request(sent[name])
            for _ in range(rng.randint(0, 3)):
                running.step()
        while running.busy:
            running.step()
            live = running.core.scheduler.requests.values()
            preempted |= {one.request_id for one in live if one.num_preemptions}
        begun = {}
        for plan in running.plans:
            for name, start in zip(plan.req_ids, plan.starts.tolist(), strict=True):
                begun.setdefault(name, start)
        found = {
            "tokens": running.tokens,
            "phases": running.phases,
            "preempted": sorted(preempted),
            "cached": sorted(name for name, start in begun.items() if start),
            "refused": refusal(processor),
        }
        return found, sent


@torch.inference_mode()
def generate(model, request):
    """Transformers' tokens, and the least by which one of them was likelier than the next."""
    tokens = torch.tensor([request.prompt_token_ids])
    items = [feature.data.get_data() for feature in request.mm_features or ()]
    images = (
        {
            "pixel_values": torch.cat([item["pixel_values"] for item in items]),
            "image_grid_thw": torch.stack([item["image_grid_thw"] for item in items]),
        }
        if items
        else {}
    )
    out = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        mm_token_type_ids=(tokens == model.config.image_token_id).int(),
        max_new_tokens=COUNT,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        **images,
    )
    best = torch.cat(out.logits).topk(2).values
    return out.sequences[0, tokens.shape[1] :].tolist(), float((best[:, 0] - best[:, 1]).min())


def main(folder):
    model, *beside = make("qwen2_5_vl")
    for part in (model, *beside):
        part.save_pretrained(folder / "model")
    requests = prompts()
    results, expected = {}, {}
    for name, chosen in RUNS.items():
        results[name], sent = run(folder / "model", chosen, requests)
        expected = expected or {one: generate(model, request) for one, request in sent.items()}
    (folder / "results.json").write_text(json.dumps({"expected": expected, "runs": results}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
