"""The capabilities that an adapter class declares, from its source where they are a literal there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vllm_tt.bundle.source import NOT_ADAPTERS, ClassSource, Outside, SourceTree

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ATTRIBUTE", "UnknownFromSource", "declared_capabilities"]

ATTRIBUTE = "model_capabilities"


class UnknownFromSource(Exception):
    """The source text does not settle what the class declares."""


def declared_capabilities(module: str, name: str, folder: str | None) -> object:
    """The literal that class ``name`` of ``module`` declares or inherits, or None when it declares nothing.

    ``folder`` is the bundle's; None means ``sys.path``. Raises UnknownFromSource when only the class
    itself can tell.
    """
    search: Sequence[str] | None = None if folder is None else [folder]
    tree = SourceTree(search, outside=NOT_ADAPTERS, installed_first=folder is not None)
    for found in tree.lineage(module, name):
        if isinstance(found, Outside):
            if found.name.partition(".")[0] not in NOT_ADAPTERS:
                raise UnknownFromSource
            continue
        value = _assigned(found)
        names = tree.names(found.module)
        if names is None or ATTRIBUTE in names.assigned or found.node.keywords or found.node.decorator_list:
            raise UnknownFromSource
        if value is None:
            continue
        try:
            return ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise UnknownFromSource from None
    return None


def _assigned(found: ClassSource) -> ast.expr | None:
    """The value that the class body binds to the attribute."""
    mentions = [node for node in ast.walk(found.node) if isinstance(node, ast.Name) and node.id == ATTRIBUTE]
    if not mentions:
        return None
    owner = next((one for one in found.node.body if mentions[0] in _targets(one)), None)
    value: ast.expr | None = getattr(owner, "value", None)
    if value is None or len(mentions) > 1:  # bound under a condition, or changed after it is bound
        raise UnknownFromSource
    return value


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []
