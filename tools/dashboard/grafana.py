"""Panels as Grafana's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.dashboard.panels import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.dashboard.panels import Panel

__all__ = ["PATH", "dashboard", "text"]

PATH = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, HEIGHT = 24, 8


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=True) + "\n"


def dashboard() -> dict[str, Any]:
    panels = list(placed())
    return {
        "uid": "vllm-tt",
        "title": "vLLM on Tenstorrent",
        "description": "Why throughput is what it is: latencies, step time by phase, slow paths, memory and lanes.",
        "tags": ["vllm", "tenstorrent"],
        "schemaVersion": 41,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(variables())},
        "annotations": {"list": []},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, start=1)],
    }


def variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    queries = {
        "model_name": ("Model", "label_values(vllm:num_requests_running, model_name)"),
        "engine": ("Engine", 'label_values(vllm:num_requests_running{model_name=~"$model_name"}, engine)'),
    }
    for name, (label, query) in queries.items():
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": DATASOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 3,
            "multi": True,
            "includeAll": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def placed() -> Iterator[dict[str, Any]]:
    """Rows and panels in their places: three panels side by side, or two where a row has two or four."""
    top = 0
    for title, panels in ROWS.items():
        yield {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place(0, top, COLUMNS, 1)}
        top += 1
        across = 2 if len(panels) in (2, 4) else min(len(panels), 3)
        width = COLUMNS // across
        for number, panel in enumerate(panels):
            x, y = number % across * width, top + number // across * HEIGHT
            yield {"gridPos": place(x, y, width, HEIGHT), **graph(panel)}
        top += -(-len(panels) // across) * HEIGHT


def place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def graph(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    style = {
        "drawStyle": "line",
        "lineWidth": 2,
        "fillOpacity": 40 if panel.stacked else 8,
        "showPoints": "never",
        "stacking": stacking,
    }
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "noValue": "none", "custom": style},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": expression,
                "legendFormat": legend,
                "range": True,
            }
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
