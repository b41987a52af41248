"""The timeline as a PNG: lanes as rows, in strips where the time is long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_tt.errors import ConfigError
from vllm_tt.observe.timeline import Kind, Timeline, timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from vllm_tt.observe.steps import Log
    from vllm_tt.observe.timeline import Block, Track

__all__ = ["NoPillow", "write_png"]

WIDTH, MARGIN, LANE, GAP = 1600, 90, 34, 6
STRIPS, BLOCKS_IN_STRIP = 8, 250
INK, FAINT, PAPER = "#1f2430", "#e9ebf0", "#ffffff"
COLOURS = {Kind.DECODE: "#3b7dd8", Kind.DECODE_HOST: "#8a5cc7", Kind.PREFILL: "#e0a100", Kind.STALL: "#d0452f"}
MOST_BLOCKS = 40_000


class NoPillow(ConfigError):
    """Drawing a PNG takes pillow, which vLLM brings: run tt-bundle in vLLM's environment, or draw a page
    with --html.
    """


def write_png(logs: Sequence[Log], path: Path) -> Timeline:
    """Draw the logs' steps into ``path``."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise NoPillow from None
    drawn = timeline(logs, MOST_BLOCKS)
    lanes = [(track, lane) for track in drawn.tracks for lane in range(track.lanes)]
    blocks = sum(len(track.blocks) for track in drawn.tracks)
    strips = max(1, min(STRIPS, math.ceil(blocks / BLOCKS_IN_STRIP)))
    height = len(lanes) * (LANE + GAP) + 38
    image = Image.new("RGB", (WIDTH, 56 + strips * height), PAPER)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(15)
    _legend(draw, font)
    seconds = drawn.seconds / strips
    for strip in range(strips):
        top = 52 + strip * height
        _axis(draw, font, strip * seconds, seconds, top + len(lanes) * (LANE + GAP))
        for row, (track, lane) in enumerate(lanes):
            y = top + row * (LANE + GAP)
            label = f"lane {lane}" if len(drawn.tracks) == 1 else f"engine {drawn.tracks.index(track)}, {lane}"
            draw.text((6, y + 8), label, fill=INK, font=font)
            draw.rectangle((MARGIN, y, WIDTH - 10, y + LANE), fill=FAINT)
            for left, right, share, colour in _bars(track, lane, strip * seconds, seconds):
                draw.rectangle((left, y + LANE - round(LANE * share), right, y + LANE), fill=colour)
    image.save(path, format="PNG")
    return drawn


def _bars(track: Track, lane: int, begin: float, seconds: float) -> Iterator[tuple[float, float, float, str]]:
    """Left, right, height as a share and colour; what is rarer is drawn last, so that it is seen."""
    scale = (WIDTH - 10 - MARGIN) / (seconds or 1.0)
    seen = [block for block in track.blocks if block.start < begin + seconds and block.start + block.seconds > begin]
    for block in sorted(seen, key=_kind):
        if not block.rows[lane]:
            continue
        left = MARGIN + max(0.0, block.start - begin) * scale
        right = MARGIN + min(seconds, block.start + block.seconds - begin) * scale
        share = 0.25 + 0.75 * block.rows[lane] / track.most_rows
        yield left, max(left, right - 1), share, COLOURS[block.kind]


def _kind(block: Block) -> Kind:
    return block.kind


def _legend(draw: Any, font: Any) -> None:
    left = MARGIN
    for kind, colour in COLOURS.items():
        draw.rectangle((left, 16, left + 16, 32), fill=colour)
        draw.text((left + 24, 15), kind.label, fill=INK, font=font)
        left += 60 + round(draw.textlength(kind.label, font=font))
    draw.text((left, 15), "height: rows of the lane", fill=INK, font=font)


def _axis(draw: Any, font: Any, begin: float, seconds: float, y: float) -> None:
    for tick in range(11):
        x = MARGIN + (WIDTH - 10 - MARGIN) * tick / 10
        draw.line((x, y, x, y + 5), fill=INK)
        text = f"{begin + seconds * tick / 10:.2f} s"
        draw.text((min(x - 14, WIDTH - 74), y + 7), text, fill=INK, font=font)
