import json

import pytest
from click.testing import CliRunner
from tools.bench.cli import main
from tools.bench.server import Start
from tools.bench.settings import Steady


@pytest.fixture
def run(tmp_path):
    """A function that runs a command; its exit code, the lines of its table and its records."""

    def invoke(*arguments):
        file = tmp_path / "found.json"
        result = CliRunner().invoke(main, ["--json", str(file), *arguments])
        assert result.exit_code == 0, result.output
        lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
        return lines, json.loads(file.read_text())["results"]

    return invoke


@pytest.fixture
def other(tmp_path):
    folder = tmp_path / "other"
    (folder / "src" / "vllm_tt").mkdir(parents=True)
    return folder


def test_steps_beside_the_floor(fake_rigs, run):
    lines, records = run("steps", "--sizes", "8,32", "--device-ms", "0,3", "--rounds", "2", "--steps", "40")
    assert len(records) == 2 * 2 * 3
    assert lines[3:6] == [
        ["8", "sync", "floor", "0.50", "-", "0.25", "-", "-", "0.50", "prefill 0.25"],
        ["8", "sync", "0 ms", "0.75", "1.50x", "0.50", "2.00x", "-", "0.75", "prefill 0.25"],
        ["8", "sync", "3 ms", "3.75", "-", "0.50", "-", "80.0%", "3.75", "prefill 0.25"],
    ]
    rows_8 = [asked for asked in fake_rigs if asked.rows == 8]
    round_of = [(asked.floor, asked.device_ms) for asked in rows_8[:6]]
    assert round_of == [(True, 0.0), (False, 0.0), (False, 3.0)] * 2  # asynchronous, then synchronous
    assert rows_8[:6] == rows_8[6:], "two rounds of the same"


def test_checkouts_take_turns(fake_rigs, run, other):
    lines, records = run(
        "--compare", str(other), "steps", "--sizes", "32", "--device-ms", "0", "--scheduling", "async", "--rounds", "1"
    )
    assert [(one["checkout"], one["device"]) for one in records] == [
        ("here", "floor"),
        ("other", "floor"),
        ("here", "0 ms"),
        ("other", "0 ms"),
    ]
    assert [one.get("by_here") for one in records] == [None, 1.0, None, pytest.approx(2.5 / 1.5)]
    assert lines[-1][-1] == "1.67x"
    assert fake_rigs == [Steady(rows=32, steps=200, floor=True)] * 2 + [Steady(rows=32, steps=200)] * 2


def test_sampling_above_the_device(fake_rigs, run):
    lines, records = run("sampling", "--vocabularies", "64", "--rounds", "1")
    by_name = {record["sampled"]: record for record in records}
    assert by_name["on the host, greedy"]["above_ms"] == 0.0
    assert "above_ms" not in by_name["on the device, greedy"]
    assert "above_ms" not in by_name["reading the logits once"]
    assert ["64", "on the host, top_p", "1.25", "0.00", "mode 1"] in lines
    workloads = [asked.workload for asked in fake_rigs]
    assert workloads[:2] == ["greedy", "top_k, top_p"]
    assert workloads[-2:] == ["one special row among sampled ones"] * 2


def test_books_beside_steps_that_nobody_counts(fake_rigs, run):
    lines, records = run("books", "--scheduling", "async", "--rounds", "1")
    assert lines == [
        ["async", "off", "1.50", "1.00x", "1.25", "1.00x"],
        ["async", "on", "1.50", "1.00x", "1.25", "1.00x"],
        ["async", "log", "1.65", "1.10x", "1.40", "1.12x"],
    ]
    assert [record["books"] for record in records] == ["off", "on", "log"]
    assert fake_rigs == [Steady(rows=32, steps=400)] * 3


def test_churn(fake_rigs, run, other):
    lines, records = run("--compare", str(other), "churn", "--scheduling", "async", "--seconds", "4")
    assert [record["efficiency"] for record in records] == [pytest.approx(0.8), pytest.approx(0.4)]
    steps = "decode device 0.75, prefill device 0.25"
    assert lines == [
        ["here", "async", "80.0%", "10.00", "80.0", "12.50", steps, "-"],
        ["other", "async", "40.0%", "60.00", "40.0", "25.00", steps, "0.50x"],
    ]
    assert {(asked.seconds, asked.warm, asked.rate) for asked in fake_rigs} == {(4.0, 5.0, 50.0)}


def test_a_profile_is_by_function(fake_rigs, run):
    lines, _ = run("profile", "--sizes", "32", "--top", "1")
    assert lines == [["32", "everything", "-", "2,000"], ["32", "vllm_tt/a.py f", "500", "800"]]


def test_startup(monkeypatch, run):
    caches = []

    def start_server(model, environment, *, cache=None):
        caches.append(cache)
        return Start(healthy=30.0, lines=[(12.0, "non-default args: {}")])

    monkeypatch.setattr("tools.bench.startup.start_server", start_server)
    monkeypatch.setattr("tools.bench.startup.import_seconds", lambda environment: 20.0)
    lines, records = run("startup", "--rounds", "2")
    assert [(record["cache"], record["by_import"], record["serving"]) for record in records] == [
        ("warm", 1.5, 18.0),
        ("empty", 1.5, 18.0),
    ]
    assert lines[0] == ["warm", "20.0", "30.0", "1.50x", "12.0", "18.0"]
    assert [cache is None for cache in caches] == [True, False] * 2
    assert len(set(caches)) == 3, "each empty cache is a new one"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", ".", "steps"], "is no checkout of the project: it has no src/vllm_tt."),
        (["steps", "--sizes", "many"], "'many': expected numbers with commas between"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2)
    assert result.stderr.splitlines()[-1].endswith(message)
