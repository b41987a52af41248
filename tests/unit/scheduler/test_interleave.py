import pytest

from vllm_tt.scheduler.interleave import DecodeInterleave
from vllm_tt.scheduler.plan import Phase


def run(policy, steps):
    """Steps as ``Pd``: P = prefill pending, d = a decode is running; returns the phases that ran."""
    ran = ""
    for step in steps:
        phase = policy.choose(prefill_pending="P" in step, decode_running="d" in step)
        policy.ran(phase)
        ran += {Phase.PREFILL: "P", Phase.DECODE: "D", Phase.EMPTY: "-"}[phase]
    return ran


@pytest.mark.parametrize(
    ("prefill_steps", "decode_steps", "expected"),
    [(2, 1, "PPDPPDPPD"), (1, 1, "PDPDPDPDP"), (1, 3, "PDDDPDDDP"), (4, 1, "PPPPDPPPP")],
)
def test_a_steady_stream_of_prompts_alternates_as_configured(prefill_steps, decode_steps, expected):
    policy = DecodeInterleave(enabled=True, prefill_steps=prefill_steps, decode_steps=decode_steps)
    assert run(policy, ["Pd"] * 9) == expected


def test_disabled_prefill_always_goes_first():
    policy = DecodeInterleave(enabled=False, prefill_steps=1, decode_steps=1)
    assert run(policy, ["Pd"] * 5) == "PPPPP"


def test_without_a_running_decode_prefill_is_never_put_off():
    policy = DecodeInterleave(enabled=True, prefill_steps=1, decode_steps=1)
    assert run(policy, ["P"] * 4) == "PPPP"


def test_the_first_prefill_of_a_run_is_never_put_off():
    policy = DecodeInterleave(enabled=True, prefill_steps=2, decode_steps=3)
    assert run(policy, ["Pd", "Pd", "Pd", "d", "Pd"]) == "PPDDP"


def test_nothing_to_do_is_an_empty_step():
    policy = DecodeInterleave(enabled=True, prefill_steps=2, decode_steps=1)
    assert run(policy, [""]) == "-"
