"""Random sampling parameters that leave the oracle's choice as it is, and what must come back with its tokens."""

import math

from oracle import RESERVED, VOCAB_SIZE

NEVER = 5
"""A token that the oracle does not choose."""
SEEDS = [0, 5, 2**31, 2**32 - 1, 2**32 + 5, -1, -2, 2**63 - 1, -(2**63) + 1]

DEVICES = {
    "likeliest": lambda rng: {"temperature": 0.0, "seed": rng.choice([None, 3])},
    "drawn": lambda rng: {
        "temperature": rng.uniform(0.1, 1.0),
        "top_k": rng.randint(1, 32),
        "top_p": rng.uniform(0.1, 1),
    },
    "penalised": lambda rng: {
        "presence_penalty": rng.uniform(-1, 1),
        "frequency_penalty": rng.uniform(-0.3, 0.3),
        "repetition_penalty": rng.uniform(0.8, 1.2),
        "temperature": rng.choice([0.0, 0.5]),
        "top_k": 32,
    },
    "logprobs": lambda rng: {
        "temperature": rng.choice([0.0, 0.9]),
        "logprobs": rng.choice([0, 1, 5, 20]),
        "top_k": rng.randint(1, 20),
    },
}
"""What a device with every capability samples itself."""

HOSTS = {
    "from all tokens": lambda rng: {"temperature": rng.uniform(0.1, 1.0), "top_k": rng.choice([-1, 0, 33, VOCAB_SIZE])},
    "seeded": lambda rng: {"temperature": 1.0, "seed": rng.choice(SEEDS)},
    "min_p": lambda rng: {"temperature": 1.0, "min_p": rng.uniform(0.01, 0.9)},
    "biased": lambda rng: {
        "logit_bias": {NEVER: rng.uniform(-5, 5), 10**6: 3.0},
        "temperature": rng.choice([0.0, 1.0]),
    },
    "restricted": lambda _: {"allowed_token_ids": list(range(RESERVED, VOCAB_SIZE))},
    "not stopping": lambda rng: {"stop_token_ids": [NEVER], "min_tokens": rng.randint(1, 6)},
    "many logprobs": lambda _: {"logprobs": 20, "temperature": 0.7},
}
"""What some device, or any, leaves to the host."""


def sampling(rng, special):
    """Parameters of one request; of ``special`` requests in one, those that the host may have to sample."""
    if rng.random() < special:
        first, second = (HOSTS[rng.choice(list(HOSTS))](rng) for _ in "ab")
        return {"temperature": 0.0} | first | (second if rng.random() < 0.2 else {})
    # Steps with logprobs do not overlap.
    (kind,) = rng.choices(list(DEVICES), [6, 6, 4, 1])
    return DEVICES[kind](rng)


def check_logprobs(asked, tokens, found):
    """``found``: for each step of a request vLLM's ``LogprobsLists``; ``asked``: its parameter."""
    count = 0 if asked is None else len(tokens)
    assert len(found) == count, f"{len(found)} logprobs of {len(tokens)} tokens of a request that asked for {asked}"
    for token, step in zip(tokens, found, strict=False):
        ids, values = step.logprob_token_ids[0].tolist(), step.logprobs[0].tolist()
        assert ids[0] == token
        assert math.isclose(values[0], 0, abs_tol=1e-4), values
        assert len(ids) >= asked + 1
        if asked:
            assert ids[1] == token, ids
            assert values[1 : asked + 1] == sorted(values[1 : asked + 1], reverse=True)
            assert len(set(ids[1 : asked + 1])) == asked, ids
