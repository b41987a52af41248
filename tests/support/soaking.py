"""Random workloads on the oracle through vLLM's engine in this process: every token of every request is checked.

The same code serves the test suite, with few requests, and `tools/soak.py`, with many.
"""

import random
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import layered
from books import counted, expected_counts
from engine import Engine
from mixed_sampling import check_logprobs, sampling
from oracle import VOCAB_SIZE, expected_tokens
from oracle_device import CACHES, SAMPLES, device

ENGINE = {"max_model_len": 512, "max_num_seqs": 6, "block_size": 32, "max_num_batched_tokens": 512}
"""Options that the cases change."""

HOST = CACHES | {"supports_async_decode": True}
"""What the oracle declares that returns logits alone."""

TIGHT = {"num_gpu_blocks_override": 18}
"""One request of the greatest length and a page: less than half a request a slot."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """What the oracle's device does beyond returning logits."""

    mode: str = "all"
    """sample_on_device_mode"""
    declares: dict = field(default_factory=dict)
    contract: int | None = 1
    compute: str = "thread"
    """When it computes."""

    def declared(self, **more):
        limits = {"max_device_top_k": 32, "max_device_logprobs": 20}
        return device(SAMPLES | limits | self.declares | more, contract=self.contract, COMPUTE=self.compute)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration of engine and workload."""

    options: dict = field(default_factory=dict)
    longest_prompt: int = 300
    longest_output: int = 80
    aborts: float = 0.3
    """Share of the requests that are aborted, at a random point of their life."""
    shared: float = 0.5
    """Share of the prompts that begin as others do."""
    preempts: bool = False
    """Whether the workload must run out of pages."""
    device: Device | None = None
    special: float | None = None
    """Share of the requests that the host may have to sample; None for greedy requests alone."""
    stops: float = 0.0
    """Share of the requests that end at a stop token."""
    resets: float = 0.0
    """Share of the steps before which everything is preempted and the prefix cache emptied."""
    layered: bool = False
    """The model has layers of full and of sliding-window attention."""
    recurrent: bool = False
    """The model has state by slot beside its pages, and no prefix caching."""
    lanes: int = 1
    """Each with the engine's options; requests arrive as many times as fast."""

    def declared(self):
        """The oracle that the case needs, in engines made within."""
        if self.layered:
            return nullcontext()
        more = {"supports_lanes": True} if self.lanes > 1 else {}
        more |= {"supports_prefix_caching": False} if self.recurrent else {}
        if self.device is not None:
            return self.device.declared(**more)
        return device(HOST | more) if more else nullcontext()

    def engine_options(self):
        tt = self.options.get("additional_config", {}).get("tt", {}) | {"lanes": self.lanes}
        if self.device is not None:
            tt |= {"sample_on_device_mode": self.device.mode}
        return ENGINE | self.options | {"additional_config": {"tt": tt}}


CASES = {
    "plain": Case(options={"enable_chunked_prefill": False, "enable_prefix_caching": False}),
    "chunks of 512": Case(options={"max_model_len": 1024, "enable_prefix_caching": False}, longest_prompt=900),
    "chunks of 64": Case(options={"max_num_batched_tokens": 64, "enable_prefix_caching": False}),
    "chunks of 7": Case(options={"long_prefill_token_threshold": 7, "enable_prefix_caching": False}),
    "chunks of 1": Case(options={"long_prefill_token_threshold": 1}, longest_prompt=120),
    "prefix caching": Case(options={"max_num_batched_tokens": 256}),
    "prefix caching, whole prompts": Case(options={"enable_chunked_prefill": False}),
    "pressure": Case(options=TIGHT | {"max_num_batched_tokens": 128, "enable_prefix_caching": False}, preempts=True),
    "pressure, prefix caching": Case(
        options=TIGHT | {"max_num_batched_tokens": 128}, longest_output=160, preempts=True
    ),
    "pressure, whole prompts": Case(options=TIGHT | {"enable_chunked_prefill": False}, preempts=True),
    "pressure, priorities": Case(
        options=TIGHT | {"max_num_batched_tokens": 64, "scheduling_policy": "priority"}, preempts=True
    ),
    "pressure, priorities, chunks of 7": Case(
        options=TIGHT | {"long_prefill_token_threshold": 7, "scheduling_policy": "priority"}, preempts=True
    ),
    "interleave off": Case(
        options={"max_num_batched_tokens": 64, "additional_config": {"tt": {"decode_interleave_enabled": False}}}
    ),
    "long prompts": Case(
        options={"max_model_len": 4096, "num_gpu_blocks_override": 300, "max_num_seqs": 8},
        longest_prompt=4000,
    ),
}

ROW_LOGITS = {"supports_row_logits": True}
CHUNKS = {"max_num_batched_tokens": 64}
CASES |= {
    "device": Case(device=Device(), stops=0.3),
    "device, legacy": Case(device=Device(contract=None, compute="read"), stops=0.3),
    "device, decode only": Case(device=Device(mode="decode_only", compute="read"), stops=0.3, special=0.0),
    "device, mixed": Case(device=Device(), special=0.1, stops=0.3),
    "device, mixed, legacy, decode only": Case(
        device=Device(contract=None, mode="decode_only"), special=0.1, stops=0.3, options=CHUNKS
    ),
    "device, split": Case(device=Device(declares=ROW_LOGITS), special=0.4, stops=0.3),
    "device, split, chunks of 64": Case(
        device=Device(declares=ROW_LOGITS, compute="read"), special=0.3, stops=0.3, options=CHUNKS
    ),
    "device, split, legacy": Case(device=Device(declares=ROW_LOGITS, contract=None), special=0.08, stops=0.3),
    "device, seeds": Case(device=Device(declares=ROW_LOGITS | {"supports_device_seeds": True}), special=0.4),
    "device, likeliest tokens alone": Case(
        device=Device(declares={"max_device_top_k": 1, "supports_device_penalties": False, "max_device_logprobs": 0}),
        special=0.0,
    ),
    "device, pressure": Case(
        options=TIGHT | {"max_num_batched_tokens": 128},
        device=Device(compute="read"),
        special=0.05,
        longest_output=160,
        preempts=True,
    ),
    "device, pressure, split, priorities, chunks of 7": Case(
        options=TIGHT | {"long_prefill_token_threshold": 7, "scheduling_policy": "priority"},
        device=Device(declares=ROW_LOGITS),
        special=0.3,
        stops=0.3,
        preempts=True,
    ),
    "device, pressure, legacy": Case(
        options=TIGHT | {"enable_prefix_caching": False}, device=Device(contract=None), special=0.0, preempts=True
    ),
    "device, resets": Case(device=Device(), special=0.0, resets=0.03, preempts=True),
    "resets": Case(options=CHUNKS, special=0.5, resets=0.03, preempts=True),
    "two lanes": Case(lanes=2, device=Device(), stops=0.3),
    "two lanes, pressure, split": Case(
        lanes=2,
        options=TIGHT | {"max_num_batched_tokens": 128},
        device=Device(declares=ROW_LOGITS, compute="read"),
        special=0.1,
        stops=0.3,
        longest_output=160,
        preempts=True,
    ),
    "device, no traces": Case(
        options={"additional_config": {"tt": {"trace_mode": "none"}}}, device=Device(compute="submit"), special=0.1
    ),
}

CASES |= {
    "recurrent": Case(recurrent=True, options=CHUNKS),
    "recurrent, pressure, priorities, chunks of 7": Case(
        recurrent=True,
        options=TIGHT | {"long_prefill_token_threshold": 7, "scheduling_policy": "priority"},
        preempts=True,
    ),
    "recurrent, device, pressure, priorities": Case(
        recurrent=True,
        options=TIGHT | {"max_num_batched_tokens": 128, "scheduling_policy": "priority"},
        device=Device(compute="read"),
        stops=0.3,
        longest_output=160,
        preempts=True,
    ),
    "recurrent, device, pressure, split, priorities": Case(
        recurrent=True,
        options=TIGHT | {"max_num_batched_tokens": 64, "scheduling_policy": "priority"},
        device=Device(declares=ROW_LOGITS),
        special=0.1,
        stops=0.3,
        preempts=True,
    ),
    "recurrent, device, pressure, legacy": Case(
        recurrent=True, options=TIGHT | CHUNKS, device=Device(contract=None), special=0.0, preempts=True
    ),
    "recurrent, device, resets": Case(
        recurrent=True, options=CHUNKS, device=Device(), special=0.0, resets=0.03, preempts=True
    ),
    "recurrent, two lanes, pressure": Case(
        recurrent=True,
        lanes=2,
        options=TIGHT | {"max_num_batched_tokens": 128},
        device=Device(),
        stops=0.3,
        longest_output=160,
        preempts=True,
    ),
}

LAYERED = ENGINE | {"max_num_seqs": 4, "max_num_batched_tokens": 64, "num_gpu_blocks_override": 160}
LAYERED_TIGHT = LAYERED | {"num_gpu_blocks_override": 1 + 16 + 2 * (1 + 6)}
"""One request of the greatest length, with two groups whose windows of 50 are behind two steps of 64 tokens."""
CASES |= {
    "layered": Case(layered=True, options=LAYERED),
    "layered, whole prompts": Case(
        layered=True, options=LAYERED | {"enable_chunked_prefill": False, "max_num_batched_tokens": 512}
    ),
    "layered, chunks of 7": Case(
        layered=True, options=LAYERED | {"long_prefill_token_threshold": 7, "enable_prefix_caching": False}
    ),
    "layered, pressure": Case(
        layered=True,
        options=LAYERED_TIGHT | {"enable_prefix_caching": False},
        longest_output=160,
        aborts=0.1,
        preempts=True,
    ),
    "layered, pressure, prefix caching": Case(
        layered=True, options=LAYERED_TIGHT, longest_output=160, aborts=0.1, shared=0.8, preempts=True
    ),
    "layered, pressure, priorities, chunks of 7": Case(
        layered=True,
        options=LAYERED_TIGHT | {"long_prefill_token_threshold": 7, "scheduling_policy": "priority"},
        longest_output=160,
        aborts=0.1,
        preempts=True,
    ),
    "layered, resets": Case(layered=True, options=LAYERED, resets=0.03, preempts=True),
    "layered, two lanes, pressure": Case(
        layered=True, lanes=2, options=LAYERED_TIGHT, longest_output=160, aborts=0.1, preempts=True
    ),
}


@dataclass
class Request:
    """A request and, once known, how it ended."""

    prompt: list
    count: int
    priority: int
    abort_after: int | None
    """Steps after its arrival at which it is aborted."""
    sampling: dict
    layered: bool = False

    def expected(self):
        """Its tokens when nobody aborts it."""
        tokens = (layered.expected_tokens if self.layered else expected_tokens)(self.prompt, self.count)
        stops = set(self.sampling.get("stop_token_ids", ()))
        end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
        return tokens[: end + 1]


def make_requests(case, rng, number):
    """``number`` requests by id; the last ones come first."""
    common = _tokens(rng, case.longest_prompt)
    requests = {f"r{i}": _random_request(case, rng, common) for i in range(number)}
    if case.preempts:
        requests |= dict(zip(list(requests)[::-1], _crowd(case, rng), strict=False))
    return requests


def _tokens(rng, number):
    return [rng.randrange(16, VOCAB_SIZE) for _ in range(number)]


def _random_request(case, rng, common):
    longest = case.longest_prompt
    length = rng.choice([1, 2, rng.randint(1, 32), rng.randint(1, longest), rng.randint(1, longest)])
    kept = rng.randint(0, length) if rng.random() < case.shared else 0
    prompt = common[:kept] + _tokens(rng, length - kept)
    abort_after = rng.choice([0, 1, 2, rng.randint(0, 200)]) if rng.random() < case.aborts else None
    count, priority = rng.randint(1, case.longest_output), rng.randint(0, 2)
    request = Request(prompt, count, priority, abort_after, {}, case.layered)
    if case.special is not None:
        request.sampling = sampling(rng, case.special)
        # vLLM wants no more tokens than may come.
        request.count = max(request.count, request.sampling.get("min_tokens", 0))
    if rng.random() < case.stops:
        request.sampling["stop_token_ids"] = [rng.choice(request.expected())]
        request.sampling.pop("min_tokens", None)
    return request


def _crowd(case, rng):
    """A request for every slot, which start together and outgrow the pages of the tight cases, whatever the seed."""
    slots = case.engine_options()["max_num_seqs"] * case.lanes
    return [Request(_tokens(rng, 40), 120, rng.randint(0, 2), None, {}, case.layered) for _ in range(slots)]


def soak(running, case, seed, number):
    """Run ``number`` requests with random arrivals; returns the ids that were preempted.

    Raises AssertionError at the first wrong token, book that does not balance, or thing left behind.
    """
    rng = random.Random(seed)
    requests = make_requests(case, rng, number)
    names = {req_id: f"{seed}-{req_id}" for req_id in requests}
    to_come, due, aborted, preempted, now = list(requests), {}, set(), set(), 0
    arrivals = 0.4 * case.lanes
    while to_come or running.busy:
        while to_come and rng.random() < arrivals / (0.6 + arrivals):
            req_id = to_come.pop()
            request = requests[req_id]
            running.add(
                names[req_id],
                request.prompt,
                priority=request.priority,
                max_tokens=request.count,
                **request.sampling,
            )
            if request.abort_after is not None:
                due.setdefault(now + request.abort_after, []).append(req_id)
        for req_id in due.pop(now, ()):
            if names[req_id] not in running.finished:
                running.abort(names[req_id])
                aborted.add(req_id)
        if case.resets and rng.random() < case.resets:
            running.core.reset_prefix_cache(reset_running_requests=True)
        running.step()
        now += 1
        preempted |= {r.request_id for r in running.core.scheduler.requests.values() if r.num_preemptions}
    assert running.worker.check() == {"requests": 0, "rows": 0, "pages": 0}
    assert running.core.scheduler.slots_held == 0
    answered = 0
    for req_id, request in requests.items():
        tokens, expected = running.tokens.pop(names[req_id]), request.expected()
        if req_id in aborted:
            expected = expected[: len(tokens)]
        assert tokens == expected, f"{req_id} of seed {seed}"
        check_logprobs(request.sampling.get("logprobs"), tokens, running.logprobs.pop(names[req_id]))
        answered += max(0, len(tokens) - 1)
    if not case.layered:
        _check_record(running, requests, preempted, answered, aborted)
    return preempted


def _check_record(running, requests, preempted, answered, aborted):
    """The oracle decoded no more rows than were needed, and everything was read."""
    record = running.worker.get_model().record
    if not preempted:
        stopped = sum("stop_token_ids" in request.sampling for request in requests.values())
        ahead = running.config.scheduler_config.async_scheduling
        surplus = record["decodes_of_row"].total() - answered
        assert 0 <= surplus <= ahead * (stopped + 2 * len(aborted)), f"{surplus} rows decoded for nobody"
    assert (record["unread"], record["sampled_dormant"]) == (0, 0)


def run_case(checkpoint, name, *, asynchronous, seed, number, lanes=None):
    """An engine for the case, and one workload on it; ``lanes`` instead of the case's own.

    checkpoint: the oracle's; that of the layered one is made beside it.
    """
    case = CASES[name] if lanes is None else replace(CASES[name], lanes=lanes)
    if case.layered:
        checkpoint = checkpoint.with_name("layered")
        if not checkpoint.exists():
            layered.write_checkpoint(checkpoint)
    with case.declared():
        _run(checkpoint, case, asynchronous, seed, number)


def _run(checkpoint, case, asynchronous, seed, number):
    running = Engine(checkpoint, async_scheduling=asynchronous, **case.engine_options())
    try:
        assert running.config.scheduler_config.async_scheduling is asynchronous
        preempted = soak(running, case, seed, number)
        assert bool(preempted) or not case.preempts, "nothing was preempted"
        used = {slot // case.engine_options()["max_num_seqs"] for plan in running.plans for slot in plan.slots.tolist()}
        assert used == set(range(case.lanes)), f"requests ran in lanes {used}"
        found, expected = counted(running.worker.counters()), expected_counts(running.plans)
        assert found == expected, f"counted {found}, expected {expected}"
        if case.device is not None:
            _check_ways(case, running.worker.get_model().record, asynchronous)
    finally:
        running.core.shutdown()


def _check_ways(case, record, asynchronous):
    """The workload went the ways that it was made for."""
    steps = record["steps"]
    if case.device.mode == "decode_only":
        assert not steps["prefill", "device"]
    if case.special is None:
        assert steps["decode", "device"]
        assert not steps["decode", "host"]
        assert record["most_unread"] == (2 if asynchronous else 0)
        assert record["reloads"]["nothing"]
        assert bool(record["reloads"]["page_table"]) is bool(case.device.contract)
