"""The demo's real checkpoint, in the cache that the demo itself uses, and what transformers answers with it."""

from functools import cache

from vllm_tt import env
from vllm_tt.demo.checkpoint import prepare

CACHE = env.CACHE_DIR.get()
"""Taken when tests are collected, before any test points the variable elsewhere."""

NEW_TOKENS = 24
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "Why is the sky blue?",
    "Hi",
    "Write a haiku about the sea.",
    "What is 7 times 8?",
    "Translate 'good morning' into French.",
    "Who wrote Hamlet?",
    "List the planets of the solar system.",
    "Explain recursion to a child.",
    "Give me a recipe for pancakes.",
    "What is photosynthesis?",
    "Tell me a joke.",
    "How many legs has a spider?",
    "Write a Python function that reverses a string.",
    "What does HTTP stand for?",
    "Summarise: " + "The quick brown fox jumps over the lazy dog. " * 12,
    "Continue: " + ", ".join(str(i) for i in range(1, 120)),
    "Repeat the last word of this text: " + " ".join(f"{i} is {i * i};" for i in range(110)),
    "Count the letters in the word banana.",
]
"""For a chat; 8 to more than 1,000 tokens with its template."""
PROMPTS = {"1": (504,), "4": (504, 260, 28, 198), "600": tuple(range(300, 900))}
"""Of token ids, by how many."""


def checkpoint():
    """The folder of SmolLM2-135M-Instruct, stored as bfloat16."""
    return prepare(cache=CACHE)


@cache
def model():
    """Transformers' own, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint(), dtype=torch.float32)


@cache
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint())


def chat_prompt(question):
    message = [{"role": "user", "content": question}]
    return tokenizer().apply_chat_template(message, add_generation_prompt=True, return_dict=False)


def greedy(prompt):
    """The tokens that follow ``prompt``, at most `NEW_TOKENS`; an end-of-sequence token is included."""
    return _greedy(tuple(prompt))


@cache
def _greedy(prompt):
    import torch

    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model().generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False)
    return out[0, len(prompt) :].tolist()


def chat(client, question):
    """A greedy answer of a server of the model, called smollm2: tokens of the prompt, of the answer, and its text."""
    answer = client.post(
        "/v1/chat/completions",
        model="smollm2",
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=NEW_TOKENS,
        return_token_ids=True,
    )
    return answer["prompt_token_ids"], answer["choices"][0]["token_ids"], answer["choices"][0]["message"]["content"]


def complete(client, prompt, **options):
    """The choice of a completion, greedy unless ``options`` say otherwise."""
    body = {"model": "smollm2", "prompt": prompt, "temperature": 0, "max_tokens": NEW_TOKENS, "return_token_ids": True}
    return client.post("/v1/completions", **body | options)["choices"][0]
