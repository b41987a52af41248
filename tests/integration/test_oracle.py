"""The oracle through vLLM's engine, our scheduler and our worker: every token of every request.

A failing case prints its seed; ORACLE_SEED replays it. `tools/soak.py` runs the same cases for long.
"""

import os
import random

import pytest
from soaking import CASES, run_case


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", CASES)
def test_every_surviving_request_is_exact(checkpoint, name, asynchronous):
    seed = int(os.environ.get("ORACLE_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    run_case(checkpoint, name, asynchronous=asynchronous, seed=seed, number=40)
