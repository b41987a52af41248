"""The real model in four lanes of an emulated Galaxy: greedy tokens equal those of transformers."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import smollm2
from smollm2 import PROMPTS, QUESTIONS

pytestmark = pytest.mark.server

LANES, PER_LANE = 4, 2


@pytest.fixture(scope="module")
def client(serve, client_of):
    return client_of(
        serve(
            smollm2.checkpoint(),
            *("--data-parallel-size", str(LANES), "--max-num-seqs", str(PER_LANE), "--async-scheduling"),
            *("--additional-config.tt.sample_on_device_mode", "all"),
            *("--dtype", "float32", "--max-model-len", "2048", "--served-model-name", "smollm2"),
            mesh="TG",
        )
    )


def test_requests_of_all_lanes_at_once_equal_transformers(client):
    most_rows = 0
    with ThreadPoolExecutor(len(QUESTIONS) + len(PROMPTS)) as pool:
        chats = {question: pool.submit(smollm2.chat, client, question) for question in QUESTIONS}
        completions = {prompt: pool.submit(smollm2.complete, client, prompt) for prompt in PROMPTS.values()}
        sent = [*chats.values(), *completions.values()]
        while not all(one.done() for one in sent):
            most_rows = max(most_rows, client.held()["rows"])
            time.sleep(0.1)
    for question, answer in chats.items():
        prompt, tokens, _ = answer.result()
        assert tokens == smollm2.greedy(prompt), question
    for prompt, answer in completions.items():
        assert answer.result()["token_ids"] == smollm2.greedy(prompt), len(prompt)
    # more than three lanes have room for
    assert most_rows > (LANES - 1) * PER_LANE
    assert client.held() == {"requests": 0, "rows": 0, "pages": 0}
