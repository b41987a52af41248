"""What each figure says and advises, from summaries as data."""

import pytest

from vllm_tt.observe.advice import _DRAIN_ADVICE, remarks
from vllm_tt.observe.summary import PhaseFigures, Stall, Summary
from vllm_tt.worker.overlap import Drain

DECODE = PhaseFigures(steps=100, ms=1000.0, wait_ms=900.0, tokens=1600)
PREFILL = PhaseFigures(steps=10, ms=100.0, wait_ms=90.0, tokens=4000)

CASES = {
    "long stalls": (
        {
            "stalls": 10,
            "stall_ms": 724.0,
            "longest_stall": Stall(ms=318.4, requests=("cmpl-x", "cmpl-y", "cmpl-z"), stalled=1),
        },
        "prefill stalls",
        (
            "42 % of decode time was lost to 10 prefill steps, longest 318 ms by requests cmpl-x and 2 "
            "more while 1 request "
            "waited"
        ),
        (
            "tt.decode_interleave_prefill_steps 1 for the shortest waits, "
            "tt.decode_interleave_decode_steps 2 and more to "
            "give decoding a larger share; a lower --max-num-batched-tokens makes each step shorter"
        ),
    ),
    "short stalls": (
        {"stalls": 1, "stall_ms": 8.0, "longest_stall": Stall(ms=8.0, requests=("cmpl-x",), stalled=3)},
        "prefill stalls",
        "0.8 % of decode time was lost to 1 prefill step, longest 8 ms by request cmpl-x while 3 requests waited",
        "",
    ),
    "no stalls": ({}, "prefill stalls", "none", ""),
    "logprobs": (
        {"host_steps": 8, "host_ms": 77.0, "host_reasons": {"logprobs": 8, "min_p": 1}, "device_steps": 102},
        "host sampling",
        "7 % of the time was in 8 of 110 steps that the host sampled, because of logprobs (8), min_p (1)",
        (
            "logprobs takes the host: send such requests to a server of their own, or let the adapter declare "
            "supports_row_logits, so that only their rows are sampled there (docs/sampling.md)"
        ),
    ),
    "rows of steps": (
        {"host_steps": 80, "host_ms": 770.0, "host_reasons": {"min_p": 80}, "split_steps": 75, "device_steps": 105},
        "host sampling",
        "70 % of the time was in 80 of 110 steps that the host sampled (75 of them in part), because of min_p (80)",
        "min_p takes the host for such rows: send such requests to a server of their own (docs/sampling.md)",
    ),
    "rarely the host": (
        {"host_steps": 1, "host_ms": 10.0, "host_reasons": {"seed": 1}, "device_steps": 109},
        "host sampling",
        "0.9 % of the time was in 1 of 110 steps that the host sampled, because of seed (1)",
        "",
    ),
    "prefill on the host": (
        {
            "host_steps": 10,
            "host_ms": 100.0,
            "host_reasons": {"prefill with sample_on_device_mode decode_only": 10},
            "device_steps": 100,
        },
        "host sampling",
        (
            "9 % of the time was in 10 of 110 steps that the host sampled, because of prefill with "
            "sample_on_device_mode "
            "decode_only (10)"
        ),
        "tt.sample_on_device_mode all, so that prefill steps are sampled there too",
    ),
    "device sampling off": (
        {},
        "host sampling",
        "every step, as device sampling is off",
        "tt.sample_on_device_mode all, if the model declares supports_sample_on_device",
    ),
    "device sampling alone": ({"device_steps": 110}, "host sampling", "none, the device sampled every step", ""),
    "drains by prefill": (
        {"drains": {"prefill": 10}},
        "drains",
        "prefill (10): steps that waited for the one before to be read",
        "",
    ),
    "drains by logprobs": (
        {"drains": {"prefill": 10, "logprobs": 9}},
        "drains",
        "prefill (10), logprobs (9): steps that waited for the one before to be read",
        "ask for logprobs only where they are read: each such step waits for the one before",
    ),
    "recomputed": (
        {"preemptions": 3, "recomputed_tokens": 1000},
        "preemptions",
        "3 requests lost slot and pages; 1,000 tokens were computed again, 25 % of all prefill",
        "more pages (--num-gpu-blocks-override) or fewer requests at once (a lower --max-num-seqs)",
    ),
    "device-bound": (
        {},
        "device",
        "90 % of the steps' time was spent waiting for the model's output, 10 % on the host",
        "",
    ),
    "pages short": (
        {"kv_mean": 0.9, "kv_max": 1.0, "preemptions": 2},
        "load",
        "KV cache 90 % full on average, 100 % at most; requests waited for a slot during 0 % of the time",
        "pages are short: --num-gpu-blocks-override for more, or a lower --max-num-seqs",
    ),
    "slots short": (
        {"kv_mean": 0.2, "kv_max": 0.4, "waiting_share": 0.5},
        "load",
        "KV cache 20 % full on average, 40 % at most; requests waited for a slot during 50 % of the time",
        "a higher --max-num-seqs, if the model's decode batch has more rows",
    ),
    "lanes uneven": (
        {"lane_rows": [[7.5, 2.0]], "uneven": 0.3},
        "lanes",
        "7.5, 2.0 rows a decode step; uneven, with requests waiting, for 30 % of the time",
        "requests of very unlike lengths fill lanes unevenly: a higher --max-num-seqs gives each lane more slots",
    ),
    "damaged": (
        {"damaged": 1, "first_damaged": "steps.jsonl:9"},
        "damaged",
        "left out as no steps: 1 line, the first at steps.jsonl:9",
        "",
    ),
}


@pytest.mark.parametrize(("figures", "about", "text", "advice"), CASES.values(), ids=CASES)
def test_what_a_figure_says(figures, about, text, advice):
    summary = Summary(
        **{"engines": 1, "span_s": 2.0, "prefill": PREFILL, "decode": DECODE, "lane_rows": [[16.0]]} | figures
    )
    (said,) = [one for one in remarks(summary) if one.about == about]
    assert (said.text, said.advice) == (text, advice)


def test_every_reason_of_a_drain_has_its_advice():
    assert set(_DRAIN_ADVICE) == {one.value for one in Drain} - {"prefill"}
