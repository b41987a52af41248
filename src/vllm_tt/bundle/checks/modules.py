"""Whether ``main_class`` leads to a class: the module, its syntax, the name in it."""

from __future__ import annotations

import ast
import itertools
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.bundle.source import NOT_ADAPTERS, ClassSource, SourceTree, find_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_tt.bundle.code import ModuleText
    from vllm_tt.bundle.metadata import Metadata

__all__ = ["class_findings", "module_findings", "syntax_findings"]

_KEY = ("main_class",)
_NEWEST_MINOR = 15
_LOOKED_AT = 500


def module_findings(
    folder: Path, metadata: Metadata, *, installed: bool, generators: frozenset[str]
) -> Iterator[Finding]:
    """Whether the module of ``main_class`` exists.

    ``installed`` takes this installation for the judge; ``generators`` are classes that tt-metal is known to have.
    """
    module = metadata.module
    if find_module(module, [str(folder)]) is not None:
        where = find_module(module, None)
        own = where is None or where.is_relative_to(folder)
        if not own and module.partition(".")[0] not in sys.stdlib_module_names:
            message = f"module {module!r} is also installed ({where}); this plugin loads the bundle's, others that one"
            yield finding("TB305", message, key=_KEY).graded(Severity.NOTE)
        return
    if find_module(module, None) is not None:
        return
    if module.partition(".")[0] == "models":
        message = f"{module!r} comes from tt-metal, which is not importable here; not checked"
        found = finding("TB302", message, key=_KEY)
        known = metadata.main_class in generators
        yield found.graded(Severity.ERROR if installed else Severity.NOTE if known else Severity.WARNING)
        return
    path = module.replace(".", "/")
    message = f"module {module!r} not found in the bundle (looked for {path}.py, {path}/__init__.py) nor installed"
    yield finding("TB301", message, hint=_nearest_module(folder, module), key=_KEY)


def _nearest_module(folder: Path, module: str) -> str:
    files = itertools.islice(itertools.chain(folder.glob("*.py"), folder.glob("*/*.py")), _LOOKED_AT)
    known = sorted(file.relative_to(folder).with_suffix("").as_posix().replace("/", ".") for file in files)
    known = [name.removesuffix(".__init__") for name in known if name.replace(".", "_").isidentifier()]
    last = module.rpartition(".")[2]
    close = get_close_matches(module, known, n=1) or [name for name in known if name.rpartition(".")[2] == last]
    return f"did you mean {close[0]!r}?" if close else ""


def syntax_findings(texts: Sequence[ModuleText], metadata: Metadata) -> Iterator[Finding]:
    """The modules that are not Python, or not that of the oldest interpreter that ``requires.python`` allows."""
    oldest = _oldest_python(metadata.requires.python)
    for text in texts:
        fault = text.fault
        if fault is not None:
            yield finding("TB311", fault.message).at(text.file, fault.line, fault.column)
        elif oldest is not None:
            yield from _too_new(text, oldest, metadata.requires.python or "")


def _oldest_python(requirement: str | None) -> int | None:
    """The minor version of the oldest Python 3 that the range allows, from 3.8 on."""
    if requirement is None:
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        allowed = SpecifierSet(requirement)
    except InvalidSpecifier:
        return None
    minors = [minor for minor in range(8, _NEWEST_MINOR) if allowed.contains(f"3.{minor}.99")]
    return minors[0] if minors else None


def _too_new(text: ModuleText, minor: int, requirement: str) -> Iterator[Finding]:
    try:
        ast.parse(text.path.read_bytes(), filename=text.file, feature_version=(3, minor))
    except SyntaxError as error:
        message = f"{error.msg} (requires.python is {shown(requirement)}, which allows Python 3.{minor})"
        yield finding("TB311", message).at(text.file, error.lineno, error.offset)
    except (OSError, ValueError, RecursionError, MemoryError):
        return


def class_findings(folder: Path | None, metadata: Metadata) -> Iterator[Finding]:
    """Whether the module binds the name to a class. ``folder``: the bundle, or None for an installed module."""
    module, name = metadata.module, metadata.class_name
    tree = SourceTree(
        None if folder is None else [str(folder)], outside=NOT_ADAPTERS, installed_first=folder is not None
    )
    names = tree.names(module)
    if names is None or names.stars or "__getattr__" in names.other:
        return
    if name not in names.bound:
        classes = [key for key, value in names.bound.items() if isinstance(value, ast.ClassDef)]
        close = get_close_matches(name, classes, n=1)
        known = f"its classes: {', '.join(classes[:8])}" if classes else "it defines no class"
        hint = f"did you mean {close[0]!r}? {known}" if close else known
        yield finding("TB303", f"{module!r} has no class {name!r}", hint=hint, key=_KEY)
        return
    if isinstance(tree.find(module, name), ClassSource) or name not in names.other:
        return
    what = _kind(names.other[name])
    if what:
        yield finding("TB304", f"'{module}:{name}' is {what}, not a class", key=_KEY)


def _kind(statement: ast.stmt) -> str:
    """What a statement binds; empty when it may be a class."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return "a function"
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Constant):
        return "None" if value.value is None else f"a value of type {type(value.value).__name__}"
    kinds = (
        (ast.Lambda, "a function"),
        (ast.Dict, "a dict"),
        ((ast.List, ast.ListComp), "a list"),
        (ast.Tuple, "a tuple"),
    )
    return next((text for kind, text in kinds if isinstance(value, kind)), "")
