"""What the bundle's modules import and reach for: names that something else answers, paths of one machine."""

from __future__ import annotations

import ast
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.source import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_tt.bundle.code import ModuleText

__all__ = ["import_findings", "reach_findings", "top_names"]

_HOMES = re.compile(r"(?:~|/(?:home|Users|root|localdev|mnt|data|opt|scratch|workspace))/[^\s:]*")


def top_names(texts: Sequence[ModuleText]) -> dict[str, ModuleText]:
    """The first module of each top-level name of the bundle, itself or one in a package of the name."""
    tops: dict[str, ModuleText] = {}
    for text in texts:
        tops.setdefault(text.name.partition(".")[0], text)
    return tops


def import_findings(folder: Path, texts: Sequence[ModuleText], main: str) -> Iterator[Finding]:
    """Absolute imports of the bundle's own modules that find something else, and relative ones that find nothing."""
    own = top_names(texts)
    asked: dict[str, tuple[ModuleText, ast.stmt]] = {}
    for text in texts:
        for node, target in text.imports:
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            top = target.partition(".")[0]
            if top in own:
                asked.setdefault(top, (text, node))
    for top, text in own.items():
        if found := _hidden(folder, top, text, asked.get(top), is_main=top == main.partition(".")[0]):
            yield found
    yield from _relative(texts)


def _hidden(
    folder: Path, top: str, text: ModuleText, asked: tuple[ModuleText, ast.stmt] | None, *, is_main: bool
) -> Finding | None:
    """What is wrong with a top-level name of the bundle."""
    place = (asked[0].file, asked[1].lineno, asked[1].col_offset + 1) if asked else (text.file, None, None)
    if top in sys.stdlib_module_names:
        found = finding("TB308", f"{top!r} is a standard-library module; rename it")
        return (found if asked else found.graded(Severity.WARNING)).at(*place)
    if top == "models":
        message = "package 'models' has the name of tt-metal's, which wins wherever that is installed; rename it"
        return finding("TB309", message).at(*place)
    where = _installed(top, folder)
    if asked is None or where is None or (is_main and asked[0] is text):
        return None
    message = f"module {top!r} is also installed ({where}); the installed one is used, not the bundle's"
    return finding("TB305", message, hint="rename it, or import it relatively").at(*place)


def _installed(top: str, folder: Path) -> str | None:
    spec = PathFinder.find_spec(top, None)
    if spec is None:
        return None
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return None if where is None or Path(where).is_relative_to(folder) else where


def _relative(texts: Sequence[ModuleText]) -> Iterator[Finding]:
    for text in texts:
        depth = len(text.package.split(".")) if text.package else 0
        seen: set[int] = set()
        for node, _ in text.imports:
            if not isinstance(node, ast.ImportFrom) or node.level <= depth or id(node) in seen:
                continue
            seen.add(id(node))
            place = (text.file, node.lineno, node.col_offset + 1)
            if node.level == 1:
                message = f"relative import in {text.file!r}, which is not in a package: only this plugin can load it"
                yield finding("TB313", message).at(*place)
            else:
                written = "." * node.level + (node.module or "")
                yield finding("TB314", f"'from {written} import ...' leaves the bundle").at(*place)


def reach_findings(texts: Sequence[ModuleText]) -> Iterator[Finding]:
    """Absolute paths in the code, which exist on its author's machine."""
    for text in texts:
        if text.tree is None:
            continue
        quiet = set(_docstrings(text.tree))
        for node in ast.walk(text.tree):
            place = (text.file, getattr(node, "lineno", None), getattr(node, "col_offset", 0) + 1)
            if isinstance(node, ast.Call) and (path := _added_path(node)):
                quiet.add(id(node.args[-1]))
                yield finding("TB314", f"sys.path is given the absolute path {shown(path)}").at(*place)
            elif _is_home(node) and id(node) not in quiet:
                yield finding("TB314", f"absolute path {shown(node.value)}").at(*place)  # type: ignore[attr-defined]


def _added_path(call: ast.Call) -> str:
    if dotted(call.func) not in ("sys.path.insert", "sys.path.append") or not call.args:
        return ""
    last = call.args[-1]
    value = last.value if isinstance(last, ast.Constant) else ""
    return value if isinstance(value, str) and value.startswith(("/", "~")) else ""


def _is_home(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_HOMES.fullmatch(node.value))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            yield id(body[0].value)
