from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from oracle import EOS, RESERVED, VOCAB_SIZE, expected_tokens

from vllm_tt.contract import Adapter

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNKED = {"supports_chunked_prefill": True}
CACHING = {"supports_prefix_caching": True}


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(f"{length} {seed}").choices(range(RESERVED, VOCAB_SIZE), k=length)


def test_it_has_the_adapters_methods(serve: Callable[..., Any]) -> None:
    assert isinstance(serve().adapter, Adapter)


def test_the_reference_depends_on_every_token_and_never_emits_special_ones() -> None:
    tokens = prompt(40)
    out = expected_tokens(tokens, 30)
    assert min(out) >= RESERVED
    assert max(out) < VOCAB_SIZE
    for i in range(40):
        changed = [*tokens[:i], (tokens[i] + 1) % VOCAB_SIZE, *tokens[i + 1 :]]
        assert expected_tokens(changed, 3) != out[:3]
    assert expected_tokens(tokens[::-1], 3) != out[:3]
    assert expected_tokens(tokens + out[:10], 20) == out[10:]


def test_the_reference_ends_where_asked_to() -> None:
    out = expected_tokens(prompt(5), 500, eos_every=20)
    assert EOS not in out[:-1]
    assert out[-1] == EOS


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lanes": 2},
        {"PAD_TO": "64"},
        {"page_size": 1, "width": 128, "pages": 900},
        {"capabilities": CHUNKED | CACHING},
    ],
    ids=["plain", "lanes", "padded writes", "pages of one token", "chunked and caching"],
)
def test_rows_of_mixed_lengths_give_the_reference(serve: Callable[..., Any], options: dict[str, Any]) -> None:
    made = serve(**options)
    prompts = {5: prompt(1), 0: prompt(8), 3: prompt(31), 2: prompt(9)}
    assert made.generate(prompts, 40) == {slot: expected_tokens(row, 40) for slot, row in prompts.items()}


def test_it_ends_as_the_reference_does(serve: Callable[..., Any]) -> None:
    out = serve(model={"eos_every": 10}).generate({1: prompt(5)}, 60)[1]
    assert out[: out.index(EOS) + 1] == expected_tokens(prompt(5), 60, eos_every=10)


def test_chunks_give_the_reference(serve: Callable[..., Any]) -> None:
    made = serve(CHUNKED)
    tokens = prompt(30)
    made.prefill((1, tokens, 0, 11), (4, prompt(7), 0, 7))
    made.decode({4: (expected_tokens(prompt(7), 1)[0], 7)})
    made.prefill((1, tokens, 11, 12))
    assert made.prefill((1, tokens, 12, 30)).argmax(-1).tolist() == expected_tokens(tokens, 1)


def test_cached_pages_give_the_reference(serve: Callable[..., Any]) -> None:
    made = serve(CACHING)
    first, second = prompt(20), [*prompt(20)[:16], *prompt(9, 1)]
    made.prefill((0, first, 0, 20))
    made.tables[1, :2] = made.tables[0, :2]
    assert made.prefill((1, second, 16, 25)).argmax(-1).tolist() == expected_tokens(second, 1)


def test_a_shared_page_that_another_request_rewrites_changes_the_text(serve: Callable[..., Any]) -> None:
    """Even with the same token: what came before it is another."""
    made = serve(CACHING)
    tokens = prompt(20)
    made.prefill((0, tokens, 0, 20))
    made.tables[1, :2] = made.tables[0, :2]
    made.prefill((1, [*tokens[:16], 99], 16, 17))
    made.kv_cache.fingerprints[made.tables[0, 0], 3] += np.uint64(1)
    out = made.decode({1: (expected_tokens([*tokens[:16], 99], 1)[0], 17)})[1]
    assert int(out.argmax()) != expected_tokens([*tokens[:16], 99], 2)[1]


VIOLATIONS: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "a skipped position": (
        {},
        lambda made: made.decode({1: (20, 11)}),
        r"slots [1] decode positions [11], their rows are [10] long",
    ),
    "a repeated position": (
        {},
        lambda made: made.decode({1: (20, 9)}),
        r"slots [1] decode positions [9], their rows are [10] long",
    ),
    "a moved row": (
        {},
        lambda made: made.decode({2: (20, 10)}),
        r"slots [2] decode positions [10], their rows are [0] long",
    ),
    "no row at all": ({}, lambda made: made.decode({}), "a decode step without a row"),
    "a page of another row": (
        {},
        lambda made: (steal(made, 1, 3), made.decode({1: (20, 10), 3: (20, 12)})),
        "pages held twice in a step: [{stolen}]",
    ),
    "a page that another row took over": (
        {},
        lambda made: (steal(made, 4, 1), made.prefill((4, prompt(5), 0, 5)), made.decode({1: (20, 10)})),
        "pages [{stolen}] of slots [1] were written by others",
    ),
    "a stale page": (
        {},
        lambda made: (fill(made, 1, 2, 77), made.decode({1: (20, 10)})),
        "pages past a row's own: [77]",
    ),
    "a null page in a row": ({}, lambda made: (fill(made, 1, 0, 0), no_growth(made)), "a row's page is the null page"),
    "a chunk without the capability": (
        {},
        lambda made: made.prefill((1, prompt(20), 10, 20)),
        "slot 1 starts at 10, after nothing",
    ),
    "a chunk that goes on elsewhere": (
        CHUNKED,
        lambda made: made.prefill((1, prompt(20), 8, 20)),
        "slot 1 starts at 8, after nothing",
    ),
    "a cached prefix that is another": (
        CACHING,
        lambda made: (share(made, 1, 5), made.prefill((5, [20] * 12, 8, 12))),
        "slot 5 goes on after 8 tokens; position [0] holds [{first}], not [20]",
    ),
    "two rows in one slot": (
        {},
        lambda made: made.prefill((2, prompt(3), 0, 3), (2, prompt(4), 0, 4)),
        "two rows in one slot: [2, 2]",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_breaches_of_the_contract_are_named(name: str, serve: Callable[..., Any]) -> None:
    capabilities, breach, message = VIOLATIONS[name]
    made = serve(capabilities)
    made.prefill((1, prompt(10), 0, 10), (3, prompt(12), 0, 12))
    filled = message.format(stolen=made.tables[1, 0] if "took" in name else made.tables[3, 0], first=prompt(10)[0])
    with pytest.raises(AssertionError, match=f"^{re.escape(filled)}$"):
        breach(made)


def steal(made: Any, thief: int, owner: int) -> None:
    made.tables[thief, 0] = made.tables[owner, 0]


def share(made: Any, owner: int, reader: int) -> None:
    made.tables[reader, 0] = made.tables[owner, 0]


def fill(made: Any, slot: int, column: int, page: int) -> None:
    made.tables[slot, column] = page


def no_growth(made: Any) -> None:
    """A decode through the table as it stands."""
    start_pos = np.full(6, -1, np.int32)
    start_pos[1] = 10
    table = np.zeros_like(made.tables)
    table[1] = made.tables[1]
    made.adapter.decode_forward(
        tokens=torch.zeros((6, 1), dtype=torch.int32),
        page_table=torch.from_numpy(table),
        kv_cache=made.kv_cache,
        start_pos=torch.from_numpy(start_pos),
        enable_trace=False,
        read_from_device=True,
    )


def test_32_long_rows_take_a_few_milliseconds_a_step(serve: Callable[..., Any]) -> None:
    made = serve(slots=32, page_size=64, width=32, pages=1000)
    prompts = {slot: prompt(1500, slot) for slot in range(32)}
    out = made.generate(prompts, 2)
    started = time.perf_counter()
    for step in range(20):
        made.decode({slot: (out[slot][-1], 1501 + step) for slot in prompts})
    assert (time.perf_counter() - started) / 20 < 0.1
