import json
from importlib.metadata import version

from rich.console import Console
from tools.bench.report import Column, as_table, milliseconds, percent, reasons, times, write

COLUMNS = (
    Column("what", "what", left=True),
    Column("step, ms", "ms", milliseconds),
    Column("overlap", "share", percent),
    Column("by floor", "ratio", times),
    Column("drains", "drains", reasons, left=True),
    Column("nobody has it", "nothing"),
)


def shown(table):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]


def test_a_missing_value_is_a_dash_and_a_missing_column_is_left_out():
    records = [
        {"what": "a", "ms": 1.234, "share": 0.9971, "drains": {"prefill": 0.25, "rows": 0.012}},
        {"what": "b", "ms": 1234.5, "ratio": 1.5, "drains": {}},
    ]
    table = as_table("title", COLUMNS, records)
    assert [column.header for column in table.columns] == ["what", "step, ms", "overlap", "by floor", "drains"]
    assert shown(table) == [
        ["a", "1.23", "99.7%", "-", "prefill 0.25, rows 0.012"],
        ["b", "1,234.50", "-", "1.50x", ""],
    ]


def test_json_says_where_the_figures_come_from(tmp_path):
    write(tmp_path / "found.json", "steps", [{"rows": 32}])
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["command"] == "steps"
    assert document["results"] == [{"rows": 32}]
    assert document["machine"]["vllm"] == version("vllm")
    assert sorted(document["machine"]) == ["cpu", "cpus", "load", "python", "torch", "vllm"]
