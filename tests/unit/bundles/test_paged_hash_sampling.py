"""The oracle as a device that samples: tokens that are the reference's, and every call that it refuses."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from oracle import RESERVED, VOCAB_SIZE, expected_tokens
from oracle_calls import EVERYTHING, NOTHING, PAGES, PARAMETERS, Calls, params, prefill, stochastic, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = {"supports_sample_on_device": True, "max_device_top_k": 512, "max_device_logprobs": 5}
ROW_LOGITS = SAMPLES | {"supports_row_logits": True}
PROMPTS = {1: [20, 21, 22, 23, 24], 4: [30], 0: list(range(40, 52))}
RESET, GOES_ON = {"reset_batch": True}, {"reset_batch": False}


@pytest.fixture
def device(serve: Callable[..., Any]) -> Callable[..., Calls]:
    """``device(...)``: the three prompts, prefilled, on a device that takes explicit commands."""

    def make(capabilities: dict[str, Any] = SAMPLES, contract: int | None = 1, **options: Any) -> Calls:
        return Calls(serve(capabilities, contract=contract, **options), PROMPTS)

    return make


def reference(step: int) -> dict[int, int]:
    return {slot: expected_tokens(prompt, step + 1)[step] for slot, prompt in PROMPTS.items()}


@pytest.mark.parametrize("contract", [1, None])
def test_tokens_are_the_references_whatever_the_rows_draw_with(device: Callable[..., Calls], contract: int) -> None:
    calls = device(contract=contract)
    loads, pages, goes_on = (EVERYTHING, PAGES, NOTHING) if contract else (RESET, RESET, GOES_ON)
    assert calls.first == reference(0)
    drawn = stochastic(6, 0, 4, top_k={4: 1}, top_p={0: 0.5}, seed={0: 2**32 - 1})
    for step in range(1, 30):
        grown = any(length % 8 == 0 for length in calls.lengths.values())
        commands = loads if step == 1 else pages if grown else goes_on
        assert calls.tokens(calls.decode(commands, sampling=drawn)) == reference(step)


def test_between_reloads_the_host_is_not_listened_to(device: Callable[..., Calls]) -> None:
    calls = device()
    calls.decode(EVERYTHING)
    calls.last = dict.fromkeys(calls.last, 99)
    assert calls.tokens(calls.decode(NOTHING, drop=[4], grow=False)) == reference(2)


def test_idle_slots_give_nobodys_token(device: Callable[..., Calls]) -> None:
    calls = device()
    calls.decode(EVERYTHING, drop=[4])
    out = tokens_of(calls.decode(NOTHING)).tolist()
    assert [out[slot] for slot in (2, 3, 4, 5)] == [3] * 4


def test_a_row_without_pages_runs_on_unheard(device: Callable[..., Calls]) -> None:
    calls = device()
    calls.decode(EVERYTHING)
    out = calls.tokens(calls.decode(PAGES, drop=[4]))
    assert out == reference(2) | {4: 3}


def test_a_pool_page_that_a_dropped_row_still_writes(device: Callable[..., Calls]) -> None:
    """Its pages went to another request, and the device was not told."""
    calls = device()
    calls.decode(EVERYTHING)
    calls.served.tables[2, 0] = calls.served.tables[4, 0]
    prefill(calls.served, {2: [60, 61]}, sampling_params=params(1))
    page = int(calls.served.tables[4, 0])
    with pytest.raises(AssertionError, match=rf"^pages \[{page}\] of slots \[4\] were written by others$"):
        calls.decode(NOTHING)


def test_a_slot_that_was_given_away(device: Callable[..., Calls]) -> None:
    calls = device()
    calls.decode(EVERYTHING)
    prefill(calls.served, {4: [60, 61, 62]}, sampling_params=params(1))
    with pytest.raises(AssertionError, match=r"^slots \[4\] decode positions \[2\], their rows are \[3\] long$"):
        calls.decode(NOTHING)


def test_a_page_that_was_not_sent(device: Callable[..., Calls]) -> None:
    calls = device()
    for step in range(1, 4):
        calls.decode(EVERYTHING if step == 1 else PAGES)
    with pytest.raises(AssertionError, match=r"^a row's page is the null page$"):
        calls.decode(NOTHING)


def test_after_sampling_on_the_host_the_device_is_wrong_until_it_is_reset(device: Callable[..., Calls]) -> None:
    calls = device()
    calls.decode(EVERYTHING)
    logits = calls.decode(EVERYTHING | {"reload_sampling_params": False, "reset_sampling_state": False}, sampling=False)
    assert {slot: int(logits[slot, 0].argmax()) for slot in PROMPTS} == reference(2)
    calls.last = reference(2)
    dormant = calls.tokens(calls.decode(EVERYTHING | {"reset_sampling_state": False}))
    assert not set(dormant.items()) & set(reference(3).items())
    assert calls.served.adapter.record["sampled_dormant"] == 1
    calls.last = reference(3)
    assert calls.tokens(calls.decode(EVERYTHING)) == reference(4)


@pytest.mark.parametrize("logprobs", [False, True])
def test_logits_of_some_rows(device: Callable[..., Calls], logprobs: bool) -> None:
    """The tokens that come with them are wrong, and what the device goes on from."""
    calls = device(ROW_LOGITS)
    asks = {"enable_log_probs": {4: True}} if logprobs else {}
    _, found, logits = calls.decode(EVERYTHING, logits_rows=[1, 0], sampling=params(6, **asks))
    right = reference(1)
    assert logits.argmax(-1).tolist() == [right[1], right[0]]
    assert (calls.last[4], found is None) == (right[4], not logprobs)
    assert all(calls.last[slot] != right[slot] for slot in (0, 1))
    out = calls.tokens(calls.decode(NOTHING, sampling=params(6, **asks)))
    assert (out[4], out[0] == reference(2)[0]) == (reference(2)[4], False)


def test_logits_of_some_rows_of_a_prefill(serve: Callable[..., Any]) -> None:
    made = serve(ROW_LOGITS, contract=1)
    tokens, found, logits = prefill(made, PROMPTS, sampling_params=params(3), logits_rows=[2])
    assert logits.argmax(-1).tolist() == [reference(0)[0]]
    assert tokens[:2].tolist() == [reference(0)[1], reference(0)[4]]
    assert (int(tokens[2]) == reference(0)[0], found) == (False, None)


def test_logprobs_of_the_chosen_tokens(device: Callable[..., Calls]) -> None:
    calls = device(model={"chosen_logit": 2.0})
    tokens, found = calls.decode(EVERYTHING, sampling=params(6, enable_log_probs={1: True}))
    assert found.shape == (6, 1)
    logits = torch.zeros(VOCAB_SIZE)
    logits[int(tokens[1])] = 2.0
    assert found[1] == logits.log_softmax(0)[tokens[1]]


def test_logprobs_of_the_likeliest_tokens(device: Callable[..., Calls]) -> None:
    calls = device()
    sampling = params(6, enable_log_probs={1: True, 4: True}, num_logprobs={1: 3})
    tokens, (found, ids) = calls.decode(EVERYTHING, sampling=sampling)
    assert found.shape == ids.shape == (6, 5)
    assert ids[:, 0].tolist() == tokens.view(-1).tolist() or ids[1, 0] == tokens[1]
    assert found[1, 0] == pytest.approx(0, abs=1e-6)
    assert (found[1].diff() <= 0).all()


SEEDED = {"seed": {1: 7, 4: 7, 0: 7}}


def drawn(calls: Calls, steps: int, **sampling: Any) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {slot: [] for slot in calls.lengths}
    for step in range(steps):
        tokens = calls.tokens(calls.decode(PAGES if step else EVERYTHING, sampling=stochastic(6, 0, 1, 4, **sampling)))
        for slot, token in tokens.items():
            out[slot].append(token)
    return out


def test_a_seeded_draw_depends_on_its_row_alone(serve: Callable[..., Any]) -> None:
    flat = {"chosen_logit": 2.0}
    together = drawn(Calls(serve(SAMPLES, contract=1, model=flat), PROMPTS), 10, **SEEDED)
    again = drawn(Calls(serve(SAMPLES, contract=1, model=flat), {4: PROMPTS[1], 0: [9], 1: [8]}), 10, **SEEDED)
    unseeded = drawn(Calls(serve(SAMPLES, contract=1, model=flat), PROMPTS), 10)
    assert again[4] == together[1]
    assert len({*map(tuple, together.values()), *map(tuple, unseeded.values())}) == 6


def test_draws_are_from_the_rows_own_distribution(serve: Callable[..., Any]) -> None:
    """top_k 3 of a flat distribution; top_p that the likeliest token fills alone."""
    calls = Calls(serve(SAMPLES, contract=1, model={"chosen_logit": 0.5}, width=60), PROMPTS)
    sampling = {"top_k": {0: 3, 1: 512, 4: 512}, "top_p": {4: 0.002}}
    out = drawn(calls, 300, **sampling)
    counts = Counter(min(token, RESERVED) for token in out[0])
    assert set(counts) == {0, 1, RESERVED}
    assert min(counts.values()) > 50
    assert len(set(out[1])) > 150
    prompt = [*PROMPTS[4], calls.first[4]]
    assert out[4] == expected_tokens(prompt, 300)


PENALTIES = {"presence_penalty": {1: 2.0}, "frequency_penalty": {1: -1.0}, "repetition_penalty": {1: 1.5}}


def histories(calls: Calls, *outputs: int, slot: int = 1) -> dict[str, torch.Tensor]:
    prompts, generated = np.full((6, 5), -1, np.int32), np.full((6, max(1, len(outputs))), -1, np.int32)
    prompts[slot], generated[slot, : len(outputs)] = PROMPTS[slot], outputs
    return {"prompt_tokens": torch.from_numpy(prompts), "output_tokens": torch.from_numpy(generated)}


def test_penalties_count_what_the_device_samples(device: Callable[..., Calls]) -> None:
    calls = device()
    sent = histories(calls, calls.first[1])
    calls.decode(EVERYTHING, sampling=params(6, **PENALTIES), **sent)
    for step in range(2, 12):
        assert calls.tokens(calls.decode(PAGES, sampling=params(6, **PENALTIES))) == reference(step)


def test_penalties_choose_another_token(device: Callable[..., Calls]) -> None:
    """With logits this flat a penalty of the tokens so far, or a bonus for them, decides."""
    calls = device(model={"chosen_logit": 1.0})
    bonus = params(6, frequency_penalty={1: -2.0})
    out = calls.tokens(calls.decode(EVERYTHING, sampling=bonus, **histories(calls, calls.first[1])))
    assert out[1] == calls.first[1]


def violation(
    text: str, capabilities: dict[str, Any] = SAMPLES, contract: int | None = 1
) -> Callable[[Any], tuple[str, dict[str, Any], int | None, Any]]:
    return lambda breach: (text, capabilities, contract, breach)


def sends(**more: Any) -> Callable[[Calls], Any]:
    """A first decode with these parameters, or with other arguments."""
    arguments = {name: more.pop(name) for name in list(more) if name in ("sampling", "logits_rows", "commands")}
    arguments.setdefault("sampling", params(6, **more))
    commands = arguments.pop("commands", EVERYTHING)
    return lambda calls: calls.decode(commands, **arguments)


REFUSED: dict[str, tuple[str, dict[str, Any], int | None, Callable[[Calls], Any]]] = {
    "another record": violation("sampling_params must be DeviceSamplingParams, got {1: 2}")(sends(sampling={1: 2})),
    "too few rows": violation("temperature has 5 rows, not 6")(sends(sampling=params(5))),
    "one list too short": violation("top_p has 1 rows, not 6")(sends(top_p=[1.0])),
    "an array": violation("seed must be a list of int or NoneType, got (None,)")(sends(seed=(None,))),
    "an int for a float": violation("temperature must be a list of float, got [0, 0, 0, 0, 0, 0]")(
        sends(temperature=[0] * 6)
    ),
    "a greedy row as the client sent it": violation("a greedy row with top_k 512 and top_p 1.0")(sends(top_k={1: 512})),
    "a greedy row with a nucleus": violation("a greedy row with top_k 1 and top_p 0.5")(sends(top_p={1: 0.5})),
    "no top_k": violation("top_k 0 of a device that samples with 1 to 512")(
        sends(sampling=stochastic(6, 1, top_k={1: 0}))
    ),
    "more than it samples from": violation(
        "top_k 33 of a device that samples with 1 to 32", SAMPLES | {"max_device_top_k": 32}
    )(sends(sampling=stochastic(6, 1, top_k={1: 33}))),
    "more than the vocabulary": violation(
        "top_k 513 of a device that samples with 1 to 512", {"supports_sample_on_device": True}
    )(sends(sampling=stochastic(6, 1, top_k={1: 513}))),
    "top_p of nothing": violation("top_p 0.0")(sends(sampling=stochastic(6, 1, top_p={1: 0.0}))),
    "a negative temperature": violation("temperature -1.0")(sends(temperature={1: -1.0}, top_k={1: 5})),
    "a wide seed": violation("seed 4294967296 is not unsigned 32-bit")(sends(seed={1: 2**32})),
    "a negative seed": violation("seed -1 is not unsigned 32-bit")(sends(seed={1: -1})),
    "too many logprobs": violation("6 logprobs of a device that gives at most 5")(
        sends(enable_log_probs={1: True}, num_logprobs={1: 6})
    ),
    "logprobs that are not declared": violation(
        "0 logprobs of a device that gives at most None", {"supports_sample_on_device": True}
    )(sends(enable_log_probs={1: True})),
    "a count of no logprobs": violation("2 logprobs of a row that has none")(sends(num_logprobs={1: 2})),
    "an idle slot that draws": violation("an idle slot has Row(temperature=1.0, *")(sends(sampling=stochastic(6, 3))),
    "logits of an idle slot": violation("logits of idle slots: [3]", ROW_LOGITS)(sends(logits_rows=[3])),
    "logits of a slot twice": violation("logits_rows of 6 rows: [1, 1]", ROW_LOGITS)(sends(logits_rows=[1, 1])),
    "logits in a tuple": violation("logits_rows of 6 rows: (1,)", ROW_LOGITS)(sends(logits_rows=(1,))),
    "logits that are not declared": violation("logits_rows without supports_row_logits")(sends(logits_rows=[1])),
    "logits without sampling": violation("logits_rows without sampling_params", ROW_LOGITS)(
        sends(sampling=False, logits_rows=[1])
    ),
    "no commands": violation("decode takes the commands ['reload_inputs', *")(sends(commands={})),
    "a command for older devices": violation("decode takes the commands ['reload_inputs', *")(sends(commands=RESET)),
    "a command for newer devices": violation(
        "decode takes the commands ['reset_batch'], got {'reload_inputs': True, *", contract=None
    )(sends(commands=EVERYTHING)),
    "a command that is no bool": violation(
        "decode takes the commands ['reset_batch'], got {'reset_batch': 1}", contract=None
    )(sends(commands={"reset_batch": 1})),
    "a reset where the host samples": violation(
        "decode takes the commands [], got {'reset_batch': True}", contract=None
    )(sends(commands=RESET, sampling=False)),
    "both reloads": violation("reload_page_table with reload_inputs")(
        sends(commands=EVERYTHING | {"reload_page_table": True})
    ),
    "a reset alone": violation("reset_sampling_state without reload_sampling_params")(
        sends(commands=EVERYTHING | {"reload_sampling_params": False})
    ),
    "parameters that are not there": violation("reload_sampling_params without sampling_params")(
        sends(sampling=False, commands=EVERYTHING)
    ),
    "nothing to go on from": violation("a decode goes on from tokens that the device does not have")(
        sends(commands=NOTHING)
    ),
    "parameters never loaded": violation("sampling parameters were never loaded")(
        sends(commands=NOTHING | {"reload_inputs": True})
    ),
    "parameters that changed": violation("slot 1 has Row(temperature=1.0, *, not loaded over Row(temperature=0.0, *")(
        lambda calls: (calls.decode(EVERYTHING), calls.decode(NOTHING, sampling=stochastic(6, 1)))
    ),
    "tokens of the host's own": violation("a decode goes on from tokens that the device does not have")(
        lambda calls: (
            calls.decode(NOTHING | {"reload_inputs": True}, sampling=False),
            calls.decode(PARAMETERS),
        )
    ),
    "pages of a slot that the device thinks idle": violation("pages in idle slots")(
        lambda calls: (calls.decode(EVERYTHING, drop=[4]), calls.decode(PAGES))
    ),
    "penalties that it does not have": violation(
        "penalties that the device does not have: Row(*", SAMPLES | {"supports_device_penalties": False}
    )(sends(presence_penalty={1: 1.0})),
    "penalties out of range": violation("penalties out of range: Row(*")(sends(repetition_penalty={1: 0.0})),
    "penalties without tokens": violation("slot 1 has penalties, and no tokens were sent for them")(
        sends(presence_penalty={1: 1.0})
    ),
    "penalties of the prompt alone": violation(
        "the penalties of slot 1 count 5 tokens, its row has 6; they differ at the end"
    )(lambda calls: calls.decode(EVERYTHING, sampling=params(6, **PENALTIES), **histories(calls))),
    "penalties of other tokens": violation("the penalties of slot 1 count 6 tokens, its row has 6; they differ at 5")(
        lambda calls: calls.decode(EVERYTHING, sampling=params(6, **PENALTIES), **histories(calls, 99))
    ),
    "penalties that miss a token of the host's": violation(
        "the penalties of slot 1 count 7 tokens, its row has 7; they differ at 6"
    )(
        lambda calls: (
            calls.decode(EVERYTHING, sampling=params(6, **PENALTIES), **histories(calls, calls.first[1])),
            calls.last.update({1: 99}),
            calls.decode(NOTHING | {"reload_inputs": True}, sampling=params(6, **PENALTIES)),
        )
    ),
    "one history": violation("one of prompt_tokens and output_tokens")(
        lambda calls: calls.decode(EVERYTHING, prompt_tokens=torch.zeros(6, 1, dtype=torch.int32))
    ),
    "wide histories": violation("prompt_tokens must be torch int32 [6, 1], got torch.int64 [6, 1]")(
        lambda calls: calls.decode(
            EVERYTHING, prompt_tokens=torch.zeros(6, 1, dtype=torch.int64), output_tokens=torch.zeros(6, 1)
        )
    ),
    "not a device that samples": violation(
        "sampling_params in a decode, which does not sample on this device", {}, None
    )(lambda calls: (calls.decode({}, sampling=False), calls.decode(RESET))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_device_should_get_is_refused(name: str, serve: Callable[..., Any]) -> None:
    text, capabilities, contract, breach = REFUSED[name]
    made = serve(SAMPLES, contract=contract)
    made.adapter.model_capabilities = SAMPLES
    calls = Calls(made, PROMPTS)
    made.adapter.model_capabilities = capabilities
    made.adapter.limits = type(made.adapter.limits).of(capabilities, VOCAB_SIZE, 1)
    pattern = re.escape(text).replace(r"\*", ".*")
    with pytest.raises(AssertionError, match=f"^{pattern}$"):
        breach(calls)
