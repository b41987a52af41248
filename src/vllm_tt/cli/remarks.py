"""Findings beside a result: one line each on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vllm_tt.cli.report import session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_tt.bundle.findings import Finding

__all__ = ["remark"]


def remark(findings: Iterable[tuple[str, Finding]]) -> None:
    """Say what was found, each with the name of what it is about; with ``--json`` it is in the document."""
    if session().json:
        return
    for name, one in findings:
        click.echo(f"{name}: {one.severity.value} {one.code} {one.text}", err=True)
        if one.hint:
            click.echo(f"    hint: {one.hint}", err=True)
