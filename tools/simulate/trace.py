"""Reads jobs from a trace: one JSON object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tools.simulate.workload import NS_PER_S, Job

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BadTrace", "read_trace"]

FIELDS = {"arrival", "prompt", "output", "prefix_group", "prefix", "priority"}


class BadTrace(ConfigError):
    """{path}, line {line}: {problem}. A line is an object such as
    {{"arrival": 0.25, "prompt": 512, "output": 64}}: seconds from the start and token counts; "prefix_group"
    (a name), "prefix" (how many tokens the group shares) and "priority" (lower goes first) may be added.
    """


class EmptyTrace(ConfigError):
    """{path} has no requests in it."""


def read_trace(path: Path) -> list[Job]:
    """The jobs by arrival; jobs of one time keep the file's order."""
    groups: dict[str, int] = {}
    jobs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            jobs.append(_job(f"r{len(jobs)}", line, groups))
        except ValueError as error:
            raise BadTrace(path=path, line=number, problem=error) from None
    if not jobs:
        raise EmptyTrace(path=path)
    return sorted(jobs, key=lambda job: job.arrival_ns)


def _job(name: str, line: str, groups: dict[str, int]) -> Job:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(entry, dict):
        raise ValueError(f"found {entry!r}")
    if unknown := sorted(entry.keys() - FIELDS):
        raise ValueError(f"unknown {', '.join(unknown)}")
    prompt = _count(entry, "prompt")
    group = entry.get("prefix_group")
    if group is not None and not isinstance(group, str):
        raise ValueError(f"prefix_group is {group!r}, not a name")
    if group is None and "prefix" in entry:
        raise ValueError("prefix without prefix_group")
    priority = entry.get("priority", 0)
    if type(priority) is not int:
        raise ValueError(f"priority is {priority!r}, not an integer")
    return Job(
        name=name,
        arrival_ns=_arrival(entry),
        prompt_tokens=prompt,
        output_tokens=_count(entry, "output"),
        prefix_group=None if group is None else groups.setdefault(group, len(groups)),
        prefix_tokens=0 if group is None else min(_count(entry, "prefix"), prompt),
        priority=priority,
    )


def _count(entry: dict[str, Any], name: str) -> int:
    value = entry.get(name)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {'missing' if value is None else repr(value)}, not a count of at least 1")
    return value


def _arrival(entry: dict[str, Any]) -> int:
    value = entry.get("arrival")
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise ValueError(f"arrival is {'missing' if value is None else repr(value)}, not seconds of at least 0")
    return round(value * NS_PER_S)
