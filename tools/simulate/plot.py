"""Steps over time as a picture: phases as colours, requests as curves, and the inter-token latencies below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    from tools.simulate.record import Timeline
    from tools.simulate.run import Result

__all__ = ["draw", "shares"]

PREFILL, DECODE, IDLE = "#e07b39", "#4c78a8", "#eeeeee"
COLOURS = ["#222222", "#c44e52", "#2a9d8f", "#8c6bb1", "#b8860b", "#4c78a8"]
MOST_STEPS = 400
"""With more steps than this in view, a column of the strip stands for the shares of many."""
COLUMNS = 300
MOST_OUTLINED = 150


def draw(results: Sequence[Result], path: Path, *, begin: float = 0.0, end: float | None = None) -> None:
    """Write a PNG: a strip for each run from ``begin`` to ``end`` (seconds), and their latencies."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    last = max((result.timeline.ends[-1] / 1e9 for result in results if result.timeline.ends), default=1.0)
    end = last if end is None else min(end, last)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 2.0 * len(results) + 2.6), dpi=110, layout="constrained")
        axes = figure.subplots(len(results) + 1, 1, height_ratios=[2.0] * len(results) + [2.2])
        highest = max(max(*result.timeline.running, *result.timeline.waiting, 1) for result in results)
        for axis, result in zip(axes, results, strict=False):
            _strip(axis, result, begin, end)
            axis.set_ylim(0, highest * 1.08)
            axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes[len(results) - 1].set_xlabel("simulated time, s")
        figure.legend(*_legend(), loc="outside upper center", ncols=4, frameon=False)
        _latencies(axes[-1], results)
        figure.savefig(path, format="png")


def _strip(axis: Any, result: Result, begin: float, end: float) -> None:
    """Phases as the background, running and waiting requests as steps."""
    timeline = result.timeline
    starts, ends = np.array(timeline.starts) / 1e9, np.array(timeline.ends) / 1e9
    decodes = np.array(timeline.decodes, dtype=bool)
    inside = (ends > begin) & (starts < end)
    whole = {"transform": axis.get_xaxis_transform(), "alpha": 0.55}
    width = 0.6 if inside.sum() <= MOST_OUTLINED else 0.0
    axis.set_facecolor(IDLE)
    if inside.sum() <= MOST_STEPS:
        for phase, colour in ((~decodes, PREFILL), (decodes, DECODE)):
            chosen = inside & phase
            spans = list(zip(starts[chosen], ends[chosen] - starts[chosen], strict=True))
            axis.broken_barh(spans, (0, 1), color=colour, edgecolor="white", linewidth=width, **whole)
    else:
        edges = np.linspace(begin, end, COLUMNS + 1)
        prefill, decode = (shares(timeline, edges, decode=kind) for kind in (False, True))
        base = np.zeros(COLUMNS)
        for share, colour in ((prefill, PREFILL), (decode, DECODE)):
            axis.stairs(base + share, edges, baseline=base, fill=True, color=colour, **whole)
            base = base + share
    for counts, colour in ((timeline.running, COLOURS[0]), (timeline.waiting, COLOURS[1])):
        axis.step(starts, np.array(counts), where="post", color=colour, linewidth=1.3)
    axis.set_xlim(begin, end)
    axis.set_ylabel("requests")
    axis.set_title(f"decode interleave {result.report.policy}", loc="left", fontsize=9, fontweight="bold")


def shares(timeline: Timeline, edges: npt.NDArray[np.float64], *, decode: bool) -> npt.NDArray[np.float64]:
    """The share of each interval between ``edges`` (seconds) that steps of one phase took."""
    chosen = np.array(timeline.decodes, dtype=bool) == decode
    starts, ends = np.array(timeline.starts)[chosen] / 1e9, np.array(timeline.ends)[chosen] / 1e9
    if not len(starts):
        return np.zeros(len(edges) - 1)
    # Time spent before each edge: whole steps, and the part of the one that is under way.
    spent = np.concatenate([[0.0], np.cumsum(ends - starts)])
    before = np.searchsorted(starts, edges)
    unfinished = np.maximum(ends[np.maximum(before - 1, 0)] - edges, 0) * (before > 0)
    return np.diff(spent[before] - unfinished) / np.diff(edges)


def _legend() -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=PREFILL, alpha=0.55),
        Patch(color=DECODE, alpha=0.55),
        Line2D([], [], color=COLOURS[0]),
        Line2D([], [], color=COLOURS[1]),
    ]
    return handles, ["prefill step", "decode step", "requests with a slot", "requests waiting"]


def _latencies(axis: Any, results: Sequence[Result]) -> None:
    """The share of inter-token gaps that are longer than x, which is where policies differ."""
    for result, colour in zip(results, COLOURS * len(results), strict=False):
        gaps = sorted(result.gaps.items())
        if not gaps:
            continue
        values = np.array([gap for gap, _ in gaps]) / 1e6
        counts = np.array([count for _, count in gaps])
        longer = 1 - np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
        axis.step(np.concatenate([[0.0], values]), longer, where="post", color=colour, label=result.report.policy)
    axis.set_yscale("log")
    axis.set_ylim(1e-4, 1)
    axis.set_xlim(left=0)
    axis.set_xlabel("inter-token latency, ms")
    axis.set_ylabel("share longer than that")
    axis.axhline(0.01, color="grey", linewidth=0.8, linestyle=":")
    axis.annotate("p99", (1, 0.01), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="grey")
    if any(result.gaps for result in results):
        axis.legend(frameon=False, title="interleave", loc="upper left", bbox_to_anchor=(1, 1))
