"""The families that reference bundles serve: for each a tiny checkpoint, requests, and what transformers answers them.

A family is a record in `FAMILIES`. `tests/acceptance/test_families.py` serves each as an operator would.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import image_chats
import torch
from tools.tiny_models.families import FAMILIES as TINY
from tools.tiny_models.write import make

SERVED_AS = "tiny"
PAGE, BUDGET, SLOTS = 16, 64, 8
COMMON = {
    "--served-model-name": SERVED_AS,
    "--dtype": "float32",
    "--max-model-len": "384",
    "--max-num-seqs": str(SLOTS),
    "--block-size": str(PAGE),
    "--max-num-batched-tokens": str(BUDGET),
    "--num-gpu-blocks-override": "44",
    "--additional-config.tt.sample_on_device_mode": "all",
}
"""Chunks of a prompt in every step, and pages for three of the eight requests that run at once."""
NEW_TOKENS = 40
SURE = 1e-3
"""By how much the logit of the likeliest token stands out, everywhere in an answer that is asked for: two float32
implementations differ by 1e-4 at most, so where it does not either answer is right.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request, as it is sent and as transformers is asked."""

    path: str
    body: dict[str, Any]
    inputs: dict[str, Any]
    """Of transformers' ``generate``."""


def token_prompts(model, *, number=40, longest=330, shared=70, first_token=3):
    """Completions of token ids: half of them begin alike, a few are a single token."""
    rng = random.Random(8)
    tokens = range(first_token, model.config.get_text_config().vocab_size)
    beginning = rng.choices(tokens, k=shared)
    lengths = [rng.choice([1, 2, rng.randint(3, 40), rng.randint(40, longest), longest]) for _ in range(number)]
    prompts = [rng.choices(tokens, k=length) for length in lengths]
    prompts = [(beginning + prompt)[: len(prompt)] if i % 2 else prompt for i, prompt in enumerate(prompts)]
    return [
        Request(path="/v1/completions", body={"prompt": prompt}, inputs={"input_ids": torch.tensor([prompt])})
        for prompt in prompts
    ]


def chats_with_images(_model, tokenizer, settings):
    chats = image_chats.chats(tokenizer, settings)
    return [Request(path="/v1/chat/completions", body=body, inputs=inputs) for body, inputs in chats]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A bundle, what to serve with it, and how."""

    tiny: str
    """The checkpoint, by its name in `tools.tiny_models`."""
    bundle: str
    arguments: dict[str, str] = field(default_factory=lambda: {"--skip-tokenizer-init": ""})
    """Of ``vllm serve``, beside those that all have."""
    requests: Callable[..., list[Request]] = token_prompts
    """From the model and what is saved beside it."""
    caches_prefixes: bool = True
    unreadable: Callable[[], dict[str, dict[str, Any]]] = dict
    """Bodies of chat completions that a server must refuse, by what is wrong with them."""

    def command_line(self):
        options = COMMON | self.arguments
        return [word for name, value in options.items() for word in ((name, value) if value else (name,))]


FAMILIES = {
    "qwen3.5": Family(tiny="qwen3_5", bundle="qwen3_5-host", caches_prefixes=False),
    "gemma3": Family(
        tiny="gemma3",
        bundle="gemma3-host",
        # Three KV cache groups with pages of their own: one longest request fits, as pages are few for the others too.
        arguments={"--skip-tokenizer-init": "", "--num-gpu-blocks-override": "48"},
    ),
    "qwen2.5-vl": Family(
        tiny="qwen2_5_vl",
        bundle="qwen2_5_vl-host",
        arguments={},
        requests=chats_with_images,
        unreadable=image_chats.unreadable,
    ),
    "qwen3-moe": Family(tiny="qwen3_moe", bundle="qwen3-moe-host"),
}


def prepare(family, folder):
    """Write the family's checkpoint; returns the model and what is saved beside it."""
    assert family.tiny in TINY
    model, *beside = make(family.tiny)
    for part in (model, *beside):
        part.save_pretrained(folder)
    return model, beside


@torch.inference_mode()
def answers(model, requests):
    """Transformers' greedy tokens for each of ``requests`` whose every token is sure: pairs of both."""
    found = []
    for request in requests:
        out = model.generate(
            **request.inputs,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        best = torch.cat(out.logits).topk(2).values
        if (best[:, 0] - best[:, 1]).min() > SURE:
            found.append((request, out.sequences[0, -NEW_TOKENS:].tolist()))
    return found


def ask(client, request):
    """The tokens that the server answers with."""
    greedy = {"temperature": 0, "max_tokens": NEW_TOKENS, "ignore_eos": True, "return_token_ids": True}
    return client.post(request.path, model=SERVED_AS, **request.body, **greedy)["choices"][0]["token_ids"]
