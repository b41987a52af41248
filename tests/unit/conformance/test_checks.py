import re
from pathlib import Path

import pytest
from breakages import BREAKAGES
from sampling_breakages import SAMPLING_BREAKAGES

from vllm_tt.conformance.checks import CHECKS
from vllm_tt.conformance.sequence import run_check

BY_NAME = {check.name: check for check in CHECKS}
FOLDER = Path(__file__).parents[2] / "support"
GUIDE = Path(__file__).parents[3] / "docs" / "bundles.md"
ALL = BREAKAGES | SAMPLING_BREAKAGES
CHECKED = {
    "supports_prefix_caching",
    "supports_chunked_prefill",
    "supports_async_decode",
    "supports_sample_on_device",
    "supports_device_penalties",
    "supports_device_seeds",
    "supports_row_logits",
    "max_device_logprobs",
}


class Legacy:
    """The reference adapter before there were commands: a boolean for all of them."""

    decode_input_update_contract = None

    def decode_forward(self, *, reset_batch=True, **kwargs):
        commands = ("reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state")
        return super().decode_forward(**kwargs, **dict.fromkeys(commands, reset_batch))


@pytest.mark.parametrize("base", [object, Legacy], ids=["commands", "reset_batch"])
def test_a_complete_adapter_passes_every_row(base, llama_host, bench_of):
    bench = bench_of(type("Right", (base, llama_host) if base is not object else (llama_host,), {}))
    rows = [run_check(check, bench, FOLDER) for check in CHECKS if check.name != "windows"]
    assert {(row.status, row.case) for row in rows} == {("pass", "")}
    assert rows[0].detail.startswith("prefill then decode equals one longer prefill (largest difference ")
    assert rows[0].detail.endswith(", limit 0.001)")


def test_the_guides_example_passes_what_it_declares(llama_host, bench_of):
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    names = {}
    exec(compile(example, str(GUIDE), "exec"), names)
    bench = bench_of(type("Example", (names["GreedyOnDevice"], llama_host), {}))
    rows = {row.name: row.status for check in CHECKS if (row := run_check(check, bench, FOLDER))}
    assert "fail" not in rows.values()
    assert {name for name, status in rows.items() if status == "pass"} >= {"device-sampling", "reloads", "row-alone"}


def test_what_is_not_declared_is_not_looked_at(llama_host, bench_of):
    bench = bench_of(type("Plain", (llama_host,), {"model_capabilities": {}}))
    skipped = {row.name: row.detail for check in CHECKS if (row := run_check(check, bench, FOLDER)).status == "skip"}
    assert skipped == {
        **{check.name: f"{check.declared[0]} is not declared" for check in CHECKS if check.declared},
        "windows": "no layer has a window",
    }
    assert {name for check in CHECKS for name in check.declared} == CHECKED


@pytest.mark.parametrize("breakage", ALL, ids=lambda one: one.__name__)
def test_an_adapter_that_is_wrong_in_one_way_fails_the_right_row(breakage, llama_host, bench_of):
    name, case = ALL[breakage]
    bench = bench_of(type(breakage.__name__, (breakage, llama_host), {}))
    row = run_check(BY_NAME[name], bench, FOLDER)
    assert row.status == "fail"
    assert row.case
    if case is not None:
        assert row.case == case


def test_what_an_adapter_raises_is_named_with_its_line(llama_host, bench_of):
    breakage = next(one for one in BREAKAGES if one.__name__ == "CannotDoOneToken")
    row = run_check(CHECKS[0], bench_of(type("Broken", (breakage, llama_host), {})), FOLDER)
    line = next(
        number
        for number, text in enumerate((FOLDER / "breakages.py").read_text().splitlines(), 1)
        if 'ValueError("a prompt of one token")' in text
    )
    assert row.detail == (
        f'ValueError: a prompt of one token (breakages.py:{line}, raise ValueError("a prompt of one token"))'
    )


def test_a_fault_is_told_in_numbers(llama_host, bench_of):
    breakage = next(one for one in BREAKAGES if one.__name__ == "PrefillsTheNextPageToo")
    row = run_check(BY_NAME["foreign-pages"], bench_of(type("Broken", (breakage, llama_host), {})), FOLDER)
    assert row.detail == "prefill of slot 1, whose pages are [2, 4], changed pages [3]"
