"""The modules of a bundle that its main module reaches by imports: their syntax trees, or why there is none."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt.bundle.source import find_module, imported_module, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ModuleText", "SyntaxFault", "reachable"]

_MAX_MODULES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntaxFault:
    """Why a file is not Python."""

    message: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleText:
    """One module of the bundle."""

    name: str
    path: Path
    file: str
    """Relative to the bundle."""
    tree: ast.Module | None = None
    fault: SyntaxFault | None = None
    imports: tuple[tuple[ast.Import | ast.ImportFrom, str], ...] = field(default=())
    """Every import statement with each full module name that it asks for."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        """The package that relative imports start from; empty at the top."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def reachable(folder: Path, module: str) -> list[ModuleText]:
    """``module`` and the modules of the folder that it imports, directly or not; none when it is not there."""
    found: dict[str, ModuleText] = {}
    pending = [module]
    while pending and len(found) < _MAX_MODULES:
        name = pending.pop(0)
        path = find_module(name, [str(folder)]) if name and name not in found else None
        if path is None or path.suffix != ".py":
            continue
        found[name] = text = _read(folder, name, path)
        pending += [name.rpartition(".")[0], *(target for _, target in text.imports)]
    return list(found.values())


def _read(folder: Path, name: str, path: Path) -> ModuleText:
    file = path.relative_to(folder).as_posix()
    try:
        tree = parsed(path, path.stat().st_mtime_ns)
    except SyntaxError as error:
        column = error.offset if error.offset and error.offset > 0 else None
        fault = SyntaxFault(message=error.msg or "not Python", line=error.lineno, column=column)
    except ValueError as error:
        fault = SyntaxFault(message=str(error))
    except OSError as error:
        fault = SyntaxFault(message=f"cannot be read: {error.strerror}")
    except (RecursionError, MemoryError):
        fault = SyntaxFault(message="nested too deeply")
    else:
        text = ModuleText(name=name, path=path, file=file, tree=tree)
        return ModuleText(name=name, path=path, file=file, tree=tree, imports=tuple(_imports(tree, text.package)))
    return ModuleText(name=name, path=path, file=file, fault=fault)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = imported_module(node, package)
            if module:
                yield node, module
            yield from ((node, f"{module}.{alias.name}".lstrip(".")) for alias in node.names if alias.name != "*")
