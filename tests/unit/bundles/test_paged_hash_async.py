"""The oracle as a device that runs ahead: it computes when it likes, in the order of submission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from oracle import expected_tokens
from oracle_calls import EVERYTHING, NOTHING, PAGES, Calls, params, prefill

if TYPE_CHECKING:
    from collections.abc import Callable

AHEAD = {"supports_sample_on_device": True, "supports_async_decode": True}
PROMPTS = {1: [20, 21, 22, 23, 24], 4: [30], 0: list(range(40, 52))}
COMPUTE = ["submit", "read", "thread"]


@pytest.fixture(params=COMPUTE)
def calls(request: pytest.FixtureRequest, serve: Callable[..., Any]) -> Calls:
    return Calls(serve(AHEAD, contract=1, COMPUTE=request.param), PROMPTS)


def reference(step: int) -> dict[int, int]:
    return {slot: expected_tokens(prompt, step + 1)[step] for slot, prompt in PROMPTS.items()}


def test_a_decode_is_submitted_before_the_one_before_is_read(calls: Calls) -> None:
    before = calls.decode(EVERYTHING, read=False)
    for step in range(2, 30):
        after = calls.decode(PAGES, read=False)
        assert calls.tokens(calls.read(before)) == reference(step - 1)
        before = after
    assert calls.served.adapter.record["most_unread"] == 2


def test_the_last_is_read_first(calls: Calls) -> None:
    first, second = calls.decode(EVERYTHING, read=False), calls.decode(PAGES, read=False)
    assert calls.tokens(calls.read(second)) == reference(2)
    assert calls.tokens(calls.read(first)) == reference(1)


def test_a_prefill_comes_after_what_was_submitted(calls: Calls) -> None:
    """The row that loses its slot decodes before the new one is there."""
    handle = calls.decode(EVERYTHING, read=False)
    calls.served.tables[4] = 0
    assert prefill(calls.served, {4: [60, 61]}, sampling_params=params(1)).tolist() == expected_tokens([60, 61], 1)
    assert calls.tokens(calls.read(handle)) == reference(1)


def test_the_host_may_write_over_what_it_sent(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {}
    decode = calls.served.adapter.decode_forward
    monkeypatch.setattr(calls.served.adapter, "decode_forward", lambda **more: (sent.update(more), decode(**more))[1])
    handle = calls.decode(EVERYTHING, read=False)
    for name in ("tokens", "start_pos", "page_table"):
        sent[name].fill_(0)
    sent["sampling_params"].top_k[:] = [5] * 6
    assert calls.tokens(calls.read(handle)) == reference(1)


def test_logits_are_read_as_logits(calls: Calls) -> None:
    handle = calls.decode(NOTHING | {"reload_inputs": True}, sampling=False, read=False)
    logits = calls.read(handle, is_tokens=False)
    assert {slot: int(logits[slot, 0].argmax()) for slot in PROMPTS} == reference(1)


def test_a_fault_on_the_device_is_raised_where_it_is_read(calls: Calls) -> None:
    handle = calls.decode(EVERYTHING, read=False)
    calls.lengths[1] += 1
    late = calls.decode(EVERYTHING, read=False)
    assert calls.tokens(calls.read(handle)) == reference(1)
    with pytest.raises(AssertionError, match=r"^slots \[1\] decode positions \[7\], their rows are \[6\] long$"):
        calls.read(late)


MISREAD: dict[str, tuple[str, Callable[[Calls, Any], Any]]] = {
    "a third": (
        "3 decodes are submitted and not read; at most 2 may be",
        lambda calls, _: (calls.decode(PAGES, read=False), calls.decode(PAGES, read=False)),
    ),
    "its readback twice": (
        "a readback was started twice",
        lambda calls, handle: [calls.served.adapter.read_decode_output(handle, async_read=True) for _ in "ab"],
    ),
    "twice": (
        "a decode was read twice",
        lambda calls, handle: (
            calls.read(handle),
            calls.served.adapter.process_decode_output_host(handle, is_tokens=True),
        ),
    ),
    "without a readback": (
        "a decode is processed whose readback was not started",
        lambda calls, handle: calls.served.adapter.process_decode_output_host(handle, is_tokens=True),
    ),
    "as logits": (
        "is_tokens=False for the other kind of decode",
        lambda calls, handle: calls.read(handle, is_tokens=False),
    ),
    "at once": (
        "async_read=False",
        lambda calls, handle: calls.served.adapter.read_decode_output(handle, async_read=False),
    ),
}


@pytest.mark.parametrize("name", MISREAD)
def test_what_is_read_wrongly_is_refused(name: str, calls: Calls) -> None:
    text, breach = MISREAD[name]
    handle = calls.decode(EVERYTHING, read=False)
    with pytest.raises(AssertionError, match=f"^{text}$"):
        breach(calls, handle)


def test_more_may_be_in_flight_where_it_says_so(serve: Callable[..., Any]) -> None:
    calls = Calls(serve(AHEAD, contract=1, COMPUTE="read", DEPTH="3"), PROMPTS)
    handles = [calls.decode(EVERYTHING if not step else PAGES, read=False) for step in range(3)]
    assert [calls.tokens(calls.read(handle)) for handle in handles] == [reference(step) for step in (1, 2, 3)]


def test_a_device_that_does_not_run_ahead_answers_at_once(serve: Callable[..., Any]) -> None:
    calls = Calls(serve({"supports_sample_on_device": True}, contract=1), PROMPTS)
    assert calls.tokens(calls.taken(calls.decode(EVERYTHING, read=False))) == reference(1)


def test_the_record_says_what_was_done(calls: Calls) -> None:
    first = calls.decode(EVERYTHING, read=False)
    calls.read(calls.decode(NOTHING, read=False))
    calls.read(first)
    calls.read(calls.decode(PAGES, drop=[4], read=False))
    assert calls.served.adapter.record == {
        "steps": {("prefill", "device"): 1, ("decode", "device"): 3},
        "reloads": {"inputs": 1, "page_table": 1, "parameters": 1, "state": 1, "nothing": 1},
        "decodes_of_row": {0: 3, 1: 2, 2: 3},
        "row_logits": 0,
        "sampled_dormant": 0,
        "unread": 0,
        "most_unread": 2,
    }
