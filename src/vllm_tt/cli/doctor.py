"""``tt-bundle doctor``: what keeps vLLM from serving on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vllm_tt.cli.exits import Exit
from vllm_tt.cli.report import answer, columns, json_option
from vllm_tt.doctor.examine import examine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tt.doctor.item import Item

__all__ = ["command"]


@click.command("doctor")
@json_option
@click.pass_context
def command(context: click.Context) -> None:
    """Look at what is installed, at the environment, the device and the bundles; say how to repair what is wrong.

    Exits with 1 when there is a problem. Loads neither vllm, torch nor ttnn, and opens no device.
    """
    items = examine()
    problems = sum(item.level == "problem" for item in items)
    content = {"items": [item.to_dict() for item in items], "summary": {"problems": problems, "looked_at": len(items)}}
    answer(_lines(items, problems), content, ok=not problems)
    context.exit(Exit.FINDINGS if problems else Exit.OK)


def _lines(items: Sequence[Item], problems: int) -> Iterator[str]:
    cells = columns([[item.level, item.topic, item.found] for item in items])
    for item, line in zip(items, cells, strict=True):
        yield line
        if item.remedy:
            yield f"         -> {item.remedy}"
    yield f"\n{problems or 'No'} problem{'' if problems == 1 else 's'}, {len(items)} things looked at"
