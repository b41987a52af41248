"""Checks bundles for their authors: everything that is wrong, with its place, and nothing imported unless asked.

The metadata is read by the reader's own parser: a bundle is registered exactly when it has no error of
the classes TB0, TB1 and TB2 (and its requirements are met, and no other bundle comes before it).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.bundle import jsontext
from vllm_tt.bundle.checks.adapter import adapter_findings
from vllm_tt.bundle.checks.between import between_findings, builtin_findings
from vllm_tt.bundle.checks.fields import field_findings
from vllm_tt.bundle.checks.helpers import import_findings, reach_findings
from vllm_tt.bundle.checks.launch import launch_findings
from vllm_tt.bundle.checks.modules import module_findings, syntax_findings
from vllm_tt.bundle.checks.parsers import parser_findings
from vllm_tt.bundle.checks.place import near_miss, own_name, place_findings
from vllm_tt.bundle.code import reachable
from vllm_tt.bundle.discover import discover
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.metadata import FILE_NAME, Metadata, parse
from vllm_tt.bundle.reading import path_text, read
from vllm_tt.bundle.requires import Installed, check_requires

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vllm_tt.bundle.code import ModuleText

__all__ = ["UNSEEN", "Depth", "Report", "chosen", "validate", "validate_all"]

UNSEEN = frozenset({"TB001", "TB002", "TB010"})
"""Codes that say something could not be looked at."""

_UNMET = frozenset({"TB222", "TB702", "TB704"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Depth:
    """How much to check."""

    installed: bool = False
    """This installation is the judge: what it lacks is an error."""
    import_seconds: float | None = None
    """Import the adapter in a process of its own, for at most so long."""
    builtins: Mapping[str, str] = field(default_factory=dict)
    """The classes of built-in models by registered name."""
    generators: frozenset[str] = frozenset()
    """All classes that tt-metal is known to have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One folder and what is wrong with it."""

    folder: Path
    findings: tuple[Finding, ...]
    is_bundle: bool = True
    metadata: Metadata | None = None
    texts: tuple[ModuleText, ...] = ()

    def count(self, severity: Severity) -> int:
        """How many findings are that serious."""
        return sum(one.severity is severity for one in self.findings)


def validate(folder: Path, depth: Depth | None = None) -> Report:
    """Check one bundle."""
    if not folder.is_dir():
        return Report(folder=folder, findings=(_no_folder(folder),))
    data = read(folder)
    if isinstance(data, Finding):
        fault = data
        if fault.code == "TB004":
            own = finding("TB004", f"no {FILE_NAME} in {shown(own_name(folder))} (not a bundle folder)").at("")
            fault = near_miss(folder) or own
        return Report(folder=folder, findings=(*place_findings(folder, None), fault))
    parsed = parse(data)
    found = [*place_findings(folder, parsed.metadata), *parsed.findings]
    if parsed.metadata is None:
        return Report(folder=folder, findings=tuple(found))
    home = Path(os.path.abspath(folder))  # noqa: PTH100 - a link keeps its name
    texts = tuple(reachable(home, parsed.metadata.module))
    found += _checks(home, parsed.metadata, texts, depth or Depth())
    located = jsontext.located(tuple(found), data.decode("utf-8-sig", "replace"))
    return Report(folder=folder, findings=located, metadata=parsed.metadata, texts=texts)


def validate_all(folder: Path, depth: Depth | None = None, *, together: bool = True) -> list[Report]:
    """Check every bundle of a folder; findings of the folder itself come first.

    ``together``: as EXTRA_MODELS_DIR would have them, each against the others too.
    """
    home = Path(os.path.abspath(folder))  # noqa: PTH100 - a link keeps its name
    if not home.is_dir():
        return [Report(folder=folder, findings=(_no_folder(folder),), is_bundle=False)]
    scan = discover(str(home), ignore_requires=True)
    notices = [(notice.path, notice.finding.at("")) for notice in scan.notices]
    own = [found for path, found in notices if path == home]
    children = sorted({one.folder for one in scan.bundles} | {one.folder for one in scan.skipped})
    reports = [validate(folder / child.name, depth) for child in children]
    ready = [(one.folder, one.metadata, one.texts) for one in reports if one.metadata is not None and together]
    extra: dict[Path, list[Finding]] = {}
    for path, found in between_findings(ready):
        extra.setdefault(path, []).append(found)
    reports = [_with(one, extra.get(one.folder, ())) for one in reports]
    others = [
        Report(folder=folder / path.name, findings=(found,), is_bundle=False) for path, found in notices if path != home
    ]
    head = [Report(folder=folder, findings=tuple(own), is_bundle=False)] if own else []
    return [*head, *sorted([*reports, *others], key=lambda one: one.folder)]


def chosen(findings: Iterable[Finding], select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Finding, ...]:
    """The findings whose codes begin with one of ``select`` (all, when it is empty) and with none of ``ignore``."""
    wanted, unwanted = tuple(select) or ("TB",), tuple(ignore)
    return tuple(one for one in findings if one.code.startswith(wanted) and not one.code.startswith(unwanted))


def _no_folder(folder: Path) -> Finding:
    if folder.is_symlink():
        target = shown(os.readlink(folder), 256)  # noqa: PTH115 - a Path would change the text
        return finding("TB009", f"{path_text(folder)} is a broken symbolic link -> {target}").at("")
    return finding("TB001", f"{path_text(folder)} is not a directory").at("")


def _checks(folder: Path, metadata: Metadata, texts: Sequence[ModuleText], depth: Depth) -> Iterator[Finding]:
    yield from field_findings(metadata)
    yield from launch_findings(metadata)
    yield from builtin_findings(metadata, depth.builtins)
    for one in (*check_requires(metadata.requires, Installed()), *parser_findings(metadata)):
        yield one.graded(Severity.ERROR) if depth.installed and one.code in _UNMET else one
    yield from module_findings(folder, metadata, installed=depth.installed, generators=depth.generators)
    in_code = [
        *syntax_findings(texts, metadata),
        *import_findings(folder, texts, metadata.module),
        *reach_findings(texts),
        *adapter_findings(folder, metadata, texts, depth.import_seconds),
    ]
    yield from sorted(in_code, key=_place)


def _place(found: Finding) -> tuple[bool, str, int, str]:
    """Findings of the metadata, then those of each file by lines."""
    return (found.file != FILE_NAME, found.file, found.line or 0, found.code)


def _with(report: Report, more: Sequence[Finding]) -> Report:
    if not more:
        return report
    data = read(report.folder)
    text = "" if isinstance(data, Finding) else data.decode("utf-8-sig", "replace")
    return replace(report, findings=(*report.findings, *jsontext.located(tuple(more), text)))
