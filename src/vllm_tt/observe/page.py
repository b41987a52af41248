"""The timeline as a page that needs nothing else: lanes as rows, phases as colours, details under the pointer."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vllm_tt.observe.timeline import PAUSE_SHOWN_S, Kind, Timeline, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vllm_tt.observe.advice import Remark
    from vllm_tt.observe.steps import Log
    from vllm_tt.observe.timeline import Block

__all__ = ["write_page"]

MOST_BYTES = 1_800_000
MOST_BLOCKS = 24_000
NAMES_SHOWN = 3


def write_page(logs: Sequence[Log], remarks: Sequence[Remark], path: Path) -> Timeline:
    """Write the page into ``path``; long logs are thinned until it has a size that browsers open at once."""
    most = MOST_BLOCKS
    while True:
        drawn = timeline(logs, most)
        data = json.dumps(_data(drawn), separators=(",", ":")).replace("<", "\\u003c")
        if len(data) <= MOST_BYTES or most < 1000:
            break
        most //= 2
    template = files("vllm_tt.observe").joinpath("page.html").read_text(encoding="utf-8")
    parts = {"TITLE": escape(", ".join(log.name for log in logs)), "REMARKS": _remarks(remarks), "DATA": data}
    text = re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], template)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return drawn


def _remarks(remarks: Sequence[Remark]) -> str:
    return "\n".join(
        f"<dt>{escape(one.about)}</dt><dd>{escape(one.text)}"
        + (f"<em>{_options(escape(one.advice))}</em>" if one.advice else "")
        + "</dd>"
        for one in remarks
    )


def _options(text: str) -> str:
    return re.sub(r"--[a-z][\w-]+|\btt\.\w+", r"<code>\g<0></code>", text)


def _data(drawn: Timeline) -> dict[str, Any]:
    notes: dict[str, int] = {}
    tracks = [
        {
            "name": track.name,
            "lanes": track.lanes,
            "most": track.most_rows,
            "blocks": [_block(block, notes) for block in track.blocks],
        }
        for track in drawn.tracks
    ]
    return {
        "tracks": tracks,
        "notes": list(notes),
        "kinds": [kind.label for kind in Kind],
        "pauses": [[round(pause.start, 4), round(pause.seconds, 1)] for pause in drawn.pauses],
        "pause": PAUSE_SHOWN_S,
        "began": drawn.began,
        "seconds": round(drawn.seconds, 4),
        "steps": drawn.steps,
        "joined": drawn.joined,
    }


def _block(block: Block, notes: dict[str, int]) -> list[Any]:
    """In the order that the page's script reads."""
    names = ", ".join(block.requests[:NAMES_SHOWN])
    if len(block.requests) > NAMES_SHOWN:
        names += f" and {len(block.requests) - NAMES_SHOWN} more"
    return [
        round(block.start, 5),
        round(block.seconds, 5),
        int(block.kind),
        block.first,
        block.steps,
        list(block.rows),
        block.tokens,
        round(block.wait_s, 4),
        block.stalled,
        names,
        [notes.setdefault(note, len(notes)) for note in block.notes],
    ]
