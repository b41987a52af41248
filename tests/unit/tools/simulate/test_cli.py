import json

import pytest
from click.testing import CliRunner
from tools.simulate.cli import main, tt_options

SMALL = ["--requests", "12", "--rate", "20", "--prompt", "uniform:1-900", "--output", "9", "--max-model-len", "1024"]


def invoke(*arguments):
    return CliRunner().invoke(main, [*SMALL, *arguments])


def test_policies_are_options_of_the_platform():
    assert tt_options("off") == {"decode_interleave_enabled": False}
    assert tt_options("4/2") == {"decode_interleave_prefill_steps": 4, "decode_interleave_decode_steps": 2}


def test_reports_as_json_are_the_same_each_time():
    first, second = invoke("--compare", "off,1/1", "--json"), invoke("--compare", "off,1/1", "--json")
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    reports = json.loads(first.stdout)
    assert [report["policy"] for report in reports] == ["off", "1/1"]
    assert [report["output_tokens"] for report in reports] == [108, 108]


def test_a_trace_in_a_table_and_a_plot(tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival": 0, "prompt": 100, "output": 3}\n')
    result = invoke("--trace", str(trace), "--plot", str(tmp_path / "plot.png"))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()]
    for line in ("requests 1", "duration, s 0.0", "first token p50, ms 5.0", "inter-token max, ms 10.0"):
        assert line in lines
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


BAD_POLICY = (
    "'2-1' is no interleaving policy: expected off, or PREFILLS/DECODES such as 2/1 (at most 2 prefill steps in a row, "
    "then 1 decode step)."
)
SMALL_POOL = (
    "A pool of 1024 tokens cannot hold one request of --max-model-len 2048. Use --kv-tokens 2048 or more, or a smaller "
    "--max-model-len."
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "2-1"], BAD_POLICY),
        (["--kv-tokens", "1000"], SMALL_POOL),
        (["--trace", "/nowhere/trace.jsonl"], "[Errno 2] No such file or directory: '/nowhere/trace.jsonl'"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    result = invoke("--max-model-len", "2048", *arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, f"Error: {message}")
