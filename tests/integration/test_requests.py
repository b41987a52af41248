"""Requests at the edges of what a client may ask for: each is served exactly, and the engine lives on."""

import pytest
from engine import engine
from oracle import VOCAB_SIZE, expected_tokens
from vllm.sampling_params import StructuredOutputsParams

PROMPT = list(range(100, 140))
ANSWER = expected_tokens(PROMPT, 8)
OUTSIDE = 10**6
THINK, DONE = 50, 51
THINKING = {"reasoning_start_str": f"t{THINK}", "reasoning_end_str": f"t{DONE}"}

IMPOSSIBLE = {
    "stop tokens under min_tokens": ({"min_tokens": 8, "stop_token_ids": [OUTSIDE, -1, VOCAB_SIZE]}, ANSWER),
    "a negative stop token": ({"min_tokens": 8, "stop_token_ids": [-OUTSIDE]}, ANSWER),
    "biases": ({"logit_bias": {OUTSIDE: 100.0}}, ANSWER),
    "allowed tokens": ({"allowed_token_ids": [30, OUTSIDE]}, [30] * 8),
}


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def running(request, checkpoint):
    options = {"max_model_len": 512, "max_num_seqs": 8, "block_size": 32, "max_num_batched_tokens": 512}
    options |= {"skip_tokenizer_init": False, "reasoning_config": THINKING}
    with engine(checkpoint, async_scheduling=request.param, **options) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_held(running):
    yield
    running.run()
    assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}
    assert running.core.scheduler.slots_held == 0


@pytest.fixture
def answer(running, request):
    """``answer(prompt, **params)``: the tokens of a request that runs alone."""

    def run(prompt, **params):
        running.add(request.node.name, prompt, **{"max_tokens": 8} | params)
        running.run()
        return running.tokens[request.node.name]

    return run


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_token_ids_outside_the_vocabulary_harm_nobody(answer, case):
    params, expected = IMPOSSIBLE[case]
    assert answer(PROMPT, **params) == expected


def test_prompt_tokens_outside_the_vocabulary_are_not_penalised(answer):
    prompt = [20, OUTSIDE, 21]
    assert answer(prompt, repetition_penalty=1.1) == expected_tokens(prompt, 8)


def test_a_reused_id_is_a_new_request(answer):
    assert answer(PROMPT) == ANSWER
    assert answer(PROMPT, allowed_token_ids=[30]) == [30] * 8
    assert answer(PROMPT) == ANSWER


@pytest.mark.parametrize(
    ("length", "asked", "given"),
    [(511, 16, 1), (500, 12, 12), (500, 16, 12), (1, 1, 1), (1, 16, 16), (32, 1, 1), (33, 2, 2)],
)
def test_a_request_ends_with_the_context(answer, length, asked, given):
    prompt = [20 + i % 400 for i in range(length)]
    assert answer(prompt, max_tokens=asked) == expected_tokens(prompt, given)


def test_a_stop_token_ends_a_request(answer):
    assert answer(PROMPT, stop_token_ids=[ANSWER[3]]) == ANSWER[:4]


CHOICE = StructuredOutputsParams(regex="(t40|t41)")
CHOICE._backend = "xgrammar"  # as vLLM's front end settles it
CONTROLS = {
    "bias": ({"logit_bias": {ANSWER[0]: -100.0}}, lambda token: token != ANSWER[0]),
    "allowed": ({"allowed_token_ids": [33, 34]}, lambda token: token in (33, 34)),
    "min_p": ({"min_p": 0.5, "temperature": 1.0}, lambda token: token == ANSWER[0]),
    "top_k": ({"top_k": 1, "temperature": 2.0}, lambda token: token == ANSWER[0]),
    "presence": ({"presence_penalty": 2.0, "logit_bias": {ANSWER[0]: -99.0}}, lambda token: token not in PROMPT),
    "choice": ({"structured_outputs": CHOICE}, lambda token: token in (40, 41)),
    "plain": ({}, lambda token: token == ANSWER[0]),
}


@pytest.mark.parametrize("together", [False, True], ids=["alone", "mixed"])
def test_every_control_changes_its_own_row_and_no_other(running, together):
    """Greedy rows too: whatever the first token is without a control, the control decides."""
    for name, (params, _) in CONTROLS.items():
        running.add(name, PROMPT, max_tokens=1, **params)
        if not together:
            running.run()
    running.run()
    for name, (_, right) in CONTROLS.items():
        (token,) = running.tokens[name]
        assert right(token), (name, token)


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_thinking_ends_when_its_budget_is_spent(answer, budget):
    thoughts = expected_tokens([20, THINK], 8)
    tokens = answer([20, THINK], thinking_token_budget=budget)
    assert tokens[: budget + 1] == [*thoughts[:budget], DONE]
    assert tokens[budget + 1 :] == expected_tokens([20, THINK, *tokens[: budget + 1]], 7 - budget)


def test_a_thinking_budget_outlives_changes_of_the_batch(running):
    running.add("thinker", [20, THINK], max_tokens=12, thinking_token_budget=9)
    running.add("other", [21, THINK], max_tokens=12)
    for number in range(9):
        running.add(f"guest {number}", [30 + number], max_tokens=2)
        running.step()
    running.run()
    assert running.tokens["thinker"][:10] == [*expected_tokens([20, THINK], 9), DONE]
    assert running.tokens["other"] == expected_tokens([21, THINK], 12)
