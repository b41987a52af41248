import logging

from vllm_tt.telemetry import HOST_SAMPLING, STEPS, Counters


def test_counts_are_by_family_and_reason_and_each_reason_is_logged_once(caplog):
    counters = Counters()
    with caplog.at_level(logging.INFO, logger="vllm.tt"):
        counters.count(HOST_SAMPLING, ["logprobs", "min_p"])
        counters.count(HOST_SAMPLING, ["logprobs"])
        counters.count(STEPS, ["decode device"])
    assert counters.snapshot() == {"host_sampling": {"logprobs": 2, "min_p": 1}, "steps": {"decode device": 1}}
    assert caplog.messages == [
        f"Sampling on the host because of {reason}; it is counted from here on, and logged this once"
        for reason in ("logprobs", "min_p")
    ]


def test_the_summary_begins_with_the_most_frequent():
    counters = Counters()
    assert counters.summary() == ""
    counters.count(STEPS, ["prefill host", "decode device", "decode device"])
    counters.count(HOST_SAMPLING, ["min_p"])
    assert counters.summary() == "steps: 2 decode device, 1 prefill host; host sampling: 1 min_p"
