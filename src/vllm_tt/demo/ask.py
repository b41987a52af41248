"""One question through the chat API, timed."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Answer", "NoAnswer", "ask", "chat_request", "curl"]


class NoAnswer(TTError):
    """The server answered the chat request with {found}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A chat completion and how long it took."""

    text: str
    prompt_tokens: int
    tokens: int
    first_token_seconds: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of decoding: from the first token to the last."""
        decoding = self.seconds - self.first_token_seconds
        return (self.tokens - 1) / decoding if self.tokens > 1 and decoding > 0 else self.tokens / self.seconds


def chat_request(model: str, question: str, max_tokens: int) -> dict[str, Any]:
    """The body of a greedy chat request."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }


def ask(
    url: str, request: dict[str, Any], *, on_text: Callable[[str], None] | None = None, timeout: float = 600.0
) -> Answer:
    """Send ``request`` to the server at ``url`` as a stream; ``on_text`` gets each piece of text as it comes."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    started = time.monotonic()
    pieces: list[str] = []
    first: float | None = None
    usage: dict[str, int] = {}
    try:
        body = json.dumps({**request, "stream": True, "stream_options": {"include_usage": True}})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise NoAnswer(found=f"status {response.status}: {response.read().decode(errors='replace').strip()}")
        for event in _events(response):
            if "error" in event:
                raise NoAnswer(found=f"an error: {event['error']}")
            usage = event.get("usage") or usage
            for choice in event.get("choices", ()):
                if text := choice["delta"].get("content"):
                    first = time.monotonic() if first is None else first
                    pieces.append(text)
                    if on_text is not None:
                        on_text(text)
    finally:
        connection.close()
    ended = time.monotonic()
    if not usage:
        raise NoAnswer(found="a stream that ended early")
    return Answer(
        text="".join(pieces),
        prompt_tokens=usage["prompt_tokens"],
        tokens=usage["completion_tokens"],
        first_token_seconds=(first or ended) - started,
        seconds=ended - started,
    )


def curl(url: str, request: dict[str, Any]) -> str:
    """The same request as a command line."""
    body = json.dumps(request).replace("'", "'\\''")
    return f"curl -s {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := response.readline():
        field, _, value = line.decode().strip().partition(":")
        if field == "data" and value.strip() != "[DONE]":
            yield json.loads(value)
