"""Reads classes from source text: which file holds a module, what a class declares, what it derives from.

Nothing is imported. What the text alone does not tell is said to be unknown, never guessed.
"""

from __future__ import annotations

import ast
import builtins
import sys
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "NOT_ADAPTERS",
    "ClassSource",
    "Outside",
    "SourceTree",
    "dotted",
    "find_module",
    "imported_module",
    "parsed",
    "statements",
]

NOT_ADAPTERS = frozenset({"abc", "builtins", "enum", "torch", "ttnn", "typing", "typing_extensions", "vllm"})
"""Libraries whose classes an adapter may derive from and that know nothing of the adapter contract."""

_MAX_HOPS = 32
_PACKAGE = Path(__file__).parents[1]
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSource:
    """A class definition and the module it stands in."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Outside:
    """A class that is not in the tree: its dotted name, or empty when the text does not tell."""

    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Import:
    """What an import statement binds: ``name`` of ``module``, or the module itself."""

    module: str
    name: str = ""
    absolute: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Names:
    """The classes and imports that a module binds; None for a name bound twice or to something else."""

    bound: dict[str, ast.ClassDef | _Import | None] = field(default_factory=dict)
    stars: list[_Import] = field(default_factory=list)
    other: dict[str, ast.stmt] = field(default_factory=dict)
    """The statements that bind a name to neither a class nor an import."""
    assigned: set[str] = field(default_factory=set)
    """Attributes that the module assigns to, or into, after the fact (``C.x = 1``, ``C.x["k"] = 1``)."""


def find_module(module: str, search: Sequence[str] | None) -> Path | None:
    """The file of a module under the folders of ``search`` (``sys.path`` for None); imports no parent package."""
    *parents, last = module.split(".")
    place = None if search is None else list(search)
    for part in parents:
        spec = PathFinder.find_spec(part, place)
        if spec is None or spec.submodule_search_locations is None:
            return None
        place = list(spec.submodule_search_locations)
    spec = PathFinder.find_spec(last, place)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


class SourceTree:
    """The modules under some folders (``sys.path`` for None).

    Those of this package are in every tree: bundles derive from its classes.

    ``outside``: modules and packages that are not looked into, beside the standard library.
    ``installed_first``: an absolute import means an installed module where there is one, as it does
    for a folder at the end of ``sys.path``.
    """

    def __init__(self, search: Sequence[str] | None, *, outside: frozenset[str], installed_first: bool = False) -> None:
        self._search = search
        self._outside = outside | sys.stdlib_module_names
        self._installed_first = installed_first

    def lineage(self, module: str, name: str) -> Iterator[ClassSource | Outside]:
        """The class, then its bases depth first, each once."""
        seen: set[tuple[str, str]] = set()
        pending = [self.find(module, name)]
        while pending:
            found = pending.pop(0)
            if isinstance(found, ClassSource):
                key = (found.module, found.node.name)
                if key in seen:
                    continue
                seen.add(key)
                pending = [self._base(found.module, base) for base in found.node.bases] + pending
            yield found

    def find(self, module: str, name: str, hops: int = _MAX_HOPS) -> ClassSource | Outside:
        """The class that ``module`` binds to ``name``, followed through imports."""
        names = self.names(module)
        if names is None:
            return Outside(name=f"{module}.{name}")
        if name in names.bound:
            bound = names.bound[name]
            if isinstance(bound, ast.ClassDef):
                return ClassSource(module=module, node=bound)
            return self._imported(bound, "", hops) if isinstance(bound, _Import) else Outside()
        for star in names.stars:
            found = self._imported(star, name, hops)
            if isinstance(found, ClassSource):
                return found
        known = name in _BUILTINS and not names.stars
        return Outside(name=f"builtins.{name}" if known else "")

    def names(self, module: str) -> _Names | None:
        """What a module of the tree binds; None when it is not in the tree or not Python text."""
        file = find_module(module, [str(_PACKAGE.parent)] if _is_ours(module) else self._search)
        if file is None or file.suffix != ".py":
            return None
        try:
            return _module_names(file, file.stat().st_mtime_ns, module)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return None

    def _base(self, module: str, base: ast.expr) -> ClassSource | Outside:
        path = dotted(base.value if isinstance(base, ast.Subscript) else base)
        first, _, rest = path.partition(".")
        if not rest:
            return self.find(module, first) if first else Outside()
        names = self.names(module)
        bound = names.bound.get(first) if names else None
        return self._imported(bound, rest, _MAX_HOPS) if isinstance(bound, _Import) else Outside()

    def _imported(self, source: _Import, rest: str, hops: int) -> ClassSource | Outside:
        """The class ``rest`` of what an import binds."""
        owner, _, last = ".".join(part for part in (source.module, source.name, rest) if part).rpartition(".")
        if hops == 0:
            return Outside()
        installed = source.absolute and not _is_ours(owner) and self._is_installed(owner.partition(".")[0])
        if installed or self._is_outside(owner):
            return Outside(name=f"{owner}.{last}")
        return self.find(owner, last, hops - 1)

    def _is_outside(self, module: str) -> bool:
        return module in self._outside or any(module.startswith(f"{one}.") for one in self._outside)

    def _is_installed(self, top: str) -> bool:
        spec = PathFinder.find_spec(top, None) if self._installed_first else None
        if spec is None:
            return False
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        own = [Path(folder) for folder in self._search or ()]
        return not any(Path(place).is_relative_to(folder) for place in places for folder in own)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE.name


@lru_cache(maxsize=16)
def parsed(file: Path, _mtime: int) -> ast.Module:
    """A file's syntax tree. Raises what the parser raises: SyntaxError, ValueError, RecursionError, MemoryError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes: not what is asked here
        return ast.parse(file.read_bytes(), filename=str(file))


@lru_cache(maxsize=256)
def _module_names(file: Path, mtime: int, module: str) -> _Names:
    tree = parsed(file, mtime)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names = _Names()
    for statement in statements(tree.body):
        for name, value in _bindings(statement, package, names.stars):
            names.bound[name] = None if name in names.bound else value
            if value is None:
                names.other[name] = statement
    for node in ast.walk(tree):
        target = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(target, ast.Attribute) and isinstance(getattr(node, "ctx", None), ast.Store):
            names.assigned.add(target.attr)
    return names


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under ``if``, ``try`` and ``with`` included."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try, ast.With)):
                yield from statements(getattr(statement, inner, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from statements(handler.body)


def _bindings(
    statement: ast.stmt, package: str, stars: list[_Import]
) -> Iterator[tuple[str, ast.ClassDef | _Import | None]]:
    if isinstance(statement, ast.ClassDef):
        yield statement.name, statement
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield statement.name, None
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, _Import(module=whole, absolute=True)
    elif isinstance(statement, ast.ImportFrom):
        module = imported_module(statement, package)
        for alias in statement.names:
            source = _Import(module=module, name=alias.name, absolute=not statement.level)
            if alias.name == "*":
                stars.append(_Import(module=module, absolute=not statement.level))
            else:
                yield alias.asname or alias.name, source
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, None


def imported_module(statement: ast.ImportFrom, package: str) -> str:
    """The full name of the module that a ``from`` import in ``package`` names."""
    if not statement.level:
        return statement.module or ""
    parents = package.split(".") if package else []
    kept = parents[: len(parents) - statement.level + 1]
    return ".".join([*kept, *([statement.module] if statement.module else [])])


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of such an expression; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
