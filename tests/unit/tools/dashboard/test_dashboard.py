"""The dashboard is what the tool writes, asks for metrics that exist and shows all of ours."""

import ast
import importlib.util
import json
import re
from itertools import combinations
from pathlib import Path

import pytest
from tools.dashboard.grafana import COLUMNS, PATH, text
from tools.dashboard.panels import ROWS

from vllm_tt.telemetry import FAMILIES, GAUGES

PREFIX = "vllm_tt:"
PANELS = {panel.title: panel for panels in ROWS.values() for panel in panels}
GRAPHS = [one for one in json.loads(text())["panels"] if one["type"] == "timeseries"]
OURS = {f"{PREFIX}{one.name}_total": {one.label} - {""} for one in FAMILIES}
OURS |= {PREFIX + one.name: {"lane"} for one in GAUGES}
SUFFIXES = {"_gauge_cls": ("",), "_counter_cls": ("_total",), "_histogram_cls": ("_bucket", "_count", "_sum")}


@pytest.fixture(scope="module")
def theirs():
    """The names on vLLM's page, read from the calls that declare them."""
    (root,) = importlib.util.find_spec("vllm").submodule_search_locations
    tree = ast.parse((Path(root) / "v1/metrics/loggers.py").read_text(encoding="utf-8"))
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SUFFIXES:
            names = [
                word.value.value
                for word in call.keywords
                if word.arg == "name" and isinstance(word.value, ast.Constant)
            ]
            found |= {name + suffix for name in names for suffix in SUFFIXES[call.func.attr]}
    return found


def asked(panel):
    return {name for query in panel.queries.values() for name in re.findall(r"\b\w+:\w+", query)}


def test_the_file_is_what_the_tool_writes():
    assert PATH.read_text(encoding="utf-8") == text(), "run python -m tools.dashboard"


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_asks_for_metrics_that_exist(title, theirs):
    assert asked(PANELS[title])
    assert asked(PANELS[title]) - set(OURS) - theirs == set()


def test_everything_that_we_count_is_shown():
    assert set(OURS) - {name for panel in PANELS.values() for name in asked(panel)} == set()


def test_the_variables_ask_for_metrics_that_exist(theirs):
    variables = json.loads(text())["templating"]["list"]
    assert set(re.findall(r"\b\w+:\w+", json.dumps([one["query"] for one in variables]))) <= theirs


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_tells_series_apart_by_labels_that_they_have(title):
    for legend, query in PANELS[title].queries.items():
        labels = set(re.findall(r"{{(\w+)}}", legend))
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
        assert labels <= grouped, query
        known = {"model_name", "engine", "le", "finished_reason"}
        for name in asked(PANELS[title]) & set(OURS):
            known |= OURS[name]
        assert grouped - known - ({"phase"} if "label_replace" in query else set()) == set(), query


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_can_be_chosen_by_model_and_engine(title):
    for query in PANELS[title].queries.values():
        assert query.count("(") == query.count(")")
        selectors = re.findall(r"\w+:\w+(?:{([^}]*)})?", query)
        assert all('model_name=~"$model_name",engine=~"$engine"' in one for one in selectors), query


def test_no_panel_covers_another():
    places = [one["gridPos"] for one in json.loads(text())["panels"]]
    assert all(one["x"] + one["w"] <= COLUMNS for one in places)
    for a, b in combinations(places, 2):
        aside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert aside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]


def test_titles_and_explanations_are_there():
    assert len(PANELS) == sum(map(len, ROWS.values())) == len(GRAPHS)
    assert all(panel.about.endswith(".") for panel in PANELS.values())
