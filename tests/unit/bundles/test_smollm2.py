"""The real small model behind the adapter, against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import smollm2
import torch
from by_transformers import greedy

NEW_TOKENS = 16
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def reference() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = smollm2.checkpoint()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model, AutoTokenizer.from_pretrained(folder)


def test_a_batch_of_mixed_lengths_gives_the_greedy_tokens_of_transformers(
    reference: tuple[Any, Any], served_llama: Any
) -> None:
    model, tokenizer = reference
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_dict=False
    )
    long = tokenizer.encode("Count: " + " ".join(f"{i} is {i * i};" for i in range(110)))
    assert len(long) > 1000
    prompts = {6: chat, 1: [tokenizer.encode("The")[0]], 4: long, 3: tokenizer.encode("def fibonacci(n):\n")}
    served = served_llama(smollm2.checkpoint(), slots=8, page_size=64, width=20, pages=40)
    tokens = served.generate(prompts, NEW_TOKENS)
    assert tokens == {slot: greedy(model, prompt, NEW_TOKENS)[0] for slot, prompt in prompts.items()}
    assert "Paris" in tokenizer.decode(tokens[6])
