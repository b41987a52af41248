"""A real model over HTTP, in float32, sampled on its device: greedy tokens equal those of transformers."""

import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import smollm2
import torch
from smollm2 import PROMPTS, QUESTIONS, chat, complete
from tools import server_example_tt

from vllm_tt._data import data_path

pytestmark = pytest.mark.server


SERVING = {"tool_parser": "hermes", "reasoning_parser": "granite"}
"""Parsers that look for words alone, and leave an answer without them as it is."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """The shipped bundle, with parsers declared."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(data_path("bundles") / "llama-host", folder / "llama-host")
    metadata = folder / "llama-host" / "vllm_metadata.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"serving": SERVING}))
    return folder


@pytest.fixture(scope="module")
def server(serve, bundles):
    folder = smollm2.checkpoint()
    options = ("--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8", "--served-model-name", "smollm2")
    on_device = ("--additional-config.tt.sample_on_device_mode", "all")
    forced = ("--structured-outputs-config.enable_in_reasoning", "true")
    return serve(folder, *options, *on_device, *forced, bundles=bundles, end=signal.SIGINT)


@pytest.fixture(scope="module")
def client(server, client_of):
    return client_of(server)


def test_chat_completions_sent_at_once_equal_transformers(client):
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        answers = list(pool.map(lambda question: chat(client, question), QUESTIONS))
    assert "Paris" in answers[0][2]
    assert max(len(prompt) for prompt, _, _ in answers) > 1000
    for question, (prompt, tokens, _) in zip(QUESTIONS, answers, strict=True):
        assert prompt == smollm2.chat_prompt(question)
        assert tokens == smollm2.greedy(prompt), question


@pytest.mark.parametrize("length", PROMPTS)
def test_completions_of_token_ids_equal_transformers(client, length):
    assert complete(client, PROMPTS[length])["token_ids"] == smollm2.greedy(PROMPTS[length])


def test_logprobs_are_those_of_transformers(client):
    prompt = smollm2.tokenizer().encode("The capital of France is")
    answer = complete(client, prompt, max_tokens=1, logprobs=5)
    with torch.inference_mode():
        expected = smollm2.model()(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    top = answer["logprobs"]["top_logprobs"][0]
    assert len(top) == 5
    best = expected.topk(5)
    assert sorted(top.values(), reverse=True) == pytest.approx(best.values.tolist(), abs=1e-4)
    assert set(top) == {smollm2.tokenizer().decode([token]) for token in best.indices.tolist()}


def test_a_seeded_answer_is_the_same_among_others(client):
    drawn = {"temperature": 1.0, "top_p": 0.9, "seed": 7}
    alone = complete(client, "The capital of France is", **drawn)["token_ids"]
    prompts = [[504, 260, 28], list(range(300, 400)), "Tell me a joke.", "The capital of France is"]
    with ThreadPoolExecutor(len(prompts)) as pool:
        beside = [pool.submit(complete, client, prompt, temperature=0.7) for prompt in prompts]
        again = complete(client, "The capital of France is", **drawn)["token_ids"]
        assert all(one.result()["token_ids"] for one in beside)
    assert again == alone
    assert alone != complete(client, "The capital of France is", **drawn | {"seed": 8})["token_ids"]


def test_a_schema_is_kept(client):
    schema = {
        "type": "object",
        "properties": {"answer": {"enum": ["zebra", "quokka"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    answer = client.post(
        "/v1/chat/completions",
        model="smollm2",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    assert json.loads(answer["choices"][0]["message"]["content"])["answer"] in ("zebra", "quokka")


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def forced(client, words, **options):
    """What the server makes of an answer of which every word is forced."""
    answer = client.post(
        "/v1/chat/completions",
        model="smollm2",
        messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
        temperature=0,
        max_tokens=60,
        structured_outputs={"choice": [words]},
        **options,
    )
    return answer["choices"][0]


def test_a_tool_call_is_read_by_the_parser_that_the_bundle_declares(client):
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
    answer = forced(client, call, tools=[WEATHER])
    (tool,) = answer["message"]["tool_calls"]
    assert (tool["function"]["name"], json.loads(tool["function"]["arguments"])) == ("weather", {"city": "Oslo"})
    assert (answer["message"]["content"], answer["finish_reason"]) == (None, "tool_calls")


def test_reasoning_is_split_off_by_the_parser_that_the_bundle_declares(client):
    message = forced(client, "Here is my thought process: It is winter. Here is my response: Cold.")["message"]
    assert (message["reasoning"].strip(), message["content"].strip()) == ("It is winter.", "Cold.")


def test_the_log_says_what_the_bundle_declares(server, client):
    log = server.launch.log.read_text()
    assert "reasoning is split off by the parser granite, which bundle llama-host declares" in log
    assert "tool calls are read by the parser hermes, which bundle llama-host declares; automatic tool choice" in log


def test_prompt_logprobs_are_refused_and_nothing_else_suffers(client):
    status, answer = client.request(
        "POST", "/v1/completions", {"model": "smollm2", "prompt": "hi", "prompt_logprobs": 1, "max_tokens": 1}
    )
    assert status == 400
    assert answer["error"]["message"] == (
        "prompt_logprobs=1 is not available: prefill returns the logits of the last prompt token alone. Leave it out "
        "(in the completions API, do not ask for echo together with logprobs); logprobs of generated tokens are "
        "available."
    )
    assert complete(client, "The capital of France is", max_tokens=1)["text"]


def test_more_logprobs_than_are_served_are_refused(client):
    status, answer = client.request("POST", "/v1/completions", {"model": "smollm2", "prompt": "hi", "logprobs": 30})
    refusal = "Requested sample logprobs of 30, which is greater than max allowed: 20"
    assert (status, answer["error"]["message"][: len(refusal)]) == (400, refusal)


def test_the_requests_of_the_server_example_are_answered(client):
    bodies = server_example_tt.requests("smollm2")
    answers = [
        client.post("/v1/chat/completions", **bodies[title])["choices"][0]
        for title in ("A chat", "An answer in the form of a JSON schema")
    ]
    assert "Paris" in answers[0]["message"]["content"]
    assert set(json.loads(answers[1]["message"]["content"])) == {"country", "capital"}


def test_the_start_up_log_has_the_lines_that_operators_tools_look_for(server, client):
    log = server.launch.log.read_text()
    for line in (
        "Registered TT model TTLlamaForCausalLM -> generator_vllm:LlamaForCausalLM (from EXTRA_MODELS_DIR/llama-host)",
        "Attempting to open mesh device",
        "multidevice with 2 devices and grid (1, 2) is created",
        "Warming up prefill for sequence length: 2048",
        "Warming up decode",
    ):
        assert line in log
    assert log.index("Warming up decode") < log.index("Application startup complete")


def test_nothing_is_held_when_all_is_answered(client):
    complete(client, "hello", max_tokens=2)
    assert client.held() == {"requests": 0, "rows": 0, "pages": 0}
