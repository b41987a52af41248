from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from vllm_tt.demo.ask import Answer, NoAnswer, ask, chat_request, curl
from vllm_tt.demo.server import Launch, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path, fake_vllm: Path) -> Iterator[Server]:
    with Server(Launch(model="m", log=tmp_path / "log")) as started:
        started.wait_healthy(timeout=30)
        yield started


def test_the_answer_and_every_refusal(server: Server) -> None:
    pieces: list[str] = []
    answer = ask(server.url, chat_request("m", "Why?", 11), on_text=pieces.append)
    assert pieces == ["You ", "said: ", "Why?"]
    assert (answer.text, answer.prompt_tokens, answer.tokens) == ("You said: Why?", 9, 11)
    assert 0 < answer.first_token_seconds <= answer.seconds
    for question, message in (
        ("fail", "The server answered the chat request with status 400: bad request."),
        ("break", "The server answered the chat request with an error: {'message': 'engine died'}."),
        ("stop", "The server answered the chat request with a stream that ended early."),
    ):
        with pytest.raises(NoAnswer, match=f"^{re.escape(message)}$"):
            ask(server.url, chat_request("m", question, 5))


@pytest.mark.parametrize(("tokens", "speed"), [(21, 10.0), (1, 1 / 2.5)])
def test_speed_is_that_of_decoding(tokens: int, speed: float) -> None:
    answer = Answer(text="", prompt_tokens=3, tokens=tokens, first_token_seconds=0.5, seconds=2.5)
    assert answer.tokens_per_second == pytest.approx(speed)


def test_the_curl_line_is_the_request(tmp_path: Path) -> None:
    request = chat_request("m", 'What\'s "this"?', 5)
    words = shlex.split(curl("http://127.0.0.1:9", request))
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:9/v1/chat/completions"]
    assert words[3:5] == ["-H", "Content-Type: application/json"]
    assert json.loads(words[6]) == request
