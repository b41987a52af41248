"""Reports of bundles as lines: for people, and as annotations that GitHub shows beside a change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.reading import path_text
from vllm_tt.cli.report import finding_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_tt.bundle.findings import Finding
    from vllm_tt.bundle.validate import Report

__all__ = ["document", "github_lines", "text_lines"]

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def text_lines(reports: Sequence[Report], *, strict: bool) -> Iterator[str]:
    """``path:line:column: severity code message`` for each finding, and how many bundles passed."""
    for report in reports:
        for one in report.findings:
            yield f"{_place(report, one)}: {one.severity.value} {one.code} {_on_one_line(one.message)}"
            if one.hint:
                yield f"    hint: {_on_one_line(one.hint)}"
    numbers = _summary(reports, strict=strict)
    outcome = " and ".join(f"{numbers[name]} {name}" for name in ("passed", "failed") if numbers[name]) or "none"
    counts = [_count(numbers[f"{severity.value}s"], severity.value) for severity in Severity]
    yield f"{_count(numbers['bundles'], 'bundle')} checked, {outcome}: {', '.join(counts)}"


def github_lines(reports: Sequence[Report]) -> Iterator[str]:
    """GitHub's workflow commands, one for each finding."""
    for report in reports:
        for one in report.findings:
            # An annotation needs a file: what is said of a folder is shown at its metadata.
            path = _relative(report.folder / (one.file or "vllm_metadata.json"))
            place = {"file": path, "line": one.line, "col": one.column, "title": one.code}
            fields = ",".join(f"{key}={_property(str(value))}" for key, value in place.items() if value is not None)
            text = one.message + (f"\nhint: {one.hint}" if one.hint else "")
            yield f"::{_LEVELS[one.severity]} {fields}::{_data(text)}"


def document(reports: Sequence[Report], *, strict: bool) -> dict[str, Any]:
    """The reports for the JSON document."""
    return {
        "bundles": [
            {"path": str(one.folder), "ok": not _failed(one, strict=strict)} for one in reports if one.is_bundle
        ],
        "findings": [
            finding_record(one, str(report.folder / one.file) if one.file else str(report.folder))
            for report in reports
            for one in report.findings
        ],
        "summary": _summary(reports, strict=strict),
    }


def _summary(reports: Sequence[Report], *, strict: bool) -> dict[str, int]:
    bundles = [one for one in reports if one.is_bundle]
    failed = sum(_failed(one, strict=strict) for one in bundles)
    counts = {f"{severity.value}s": sum(one.count(severity) for one in reports) for severity in Severity}
    return {"bundles": len(bundles), "passed": len(bundles) - failed, "failed": failed, **counts}


def _failed(report: Report, *, strict: bool) -> bool:
    return bool(report.count(Severity.ERROR) or (strict and report.count(Severity.WARNING)))


def _place(report: Report, found: Finding) -> str:
    path = path_text(report.folder / found.file if found.file else report.folder)
    return ":".join([path, *(str(one) for one in (found.line, found.column) if one is not None)])


def _relative(path: Path) -> str:
    """As GitHub names files: from the root of the checkout, which is where workflows run."""
    here = os.path.relpath(path)
    return str(path) if here.startswith("..") else here


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
