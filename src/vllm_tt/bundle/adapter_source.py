"""Reads an adapter class's facts from the bundle's source text. Nothing is imported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.declared import ATTRIBUTE, UnknownFromSource, declared_capabilities
from vllm_tt.bundle.facts import UNKNOWN, AdapterFacts, Body, Method, Parameter, Place, Signature
from vllm_tt.bundle.source import (
    NOT_ADAPTERS,
    ClassSource,
    Outside,
    SourceTree,
    dotted,
    find_module,
    statements,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["class_facts"]

Function = ast.FunctionDef | ast.AsyncFunctionDef

_KINDS = {
    "classmethod": "class",
    "staticmethod": "static",
    "property": "property",
    "cached_property": "property",
    "setter": "property",
    "getter": "property",
    "deleter": "property",
    "abstractproperty": "property",
}
# Decorators that leave a function's parameters as they are.
_TRANSPARENT = frozenset(
    {"abstractmethod", "cache", "enable_grad", "final", "inference_mode", "lru_cache", "no_grad", "override"}
)
_CONTRACT = "decode_input_update_contract"


def class_facts(module: str, name: str, folder: Path | None) -> AdapterFacts | None:
    """The facts of class ``name`` of ``module`` in the bundle's folder, or on ``sys.path`` for None.

    None when the text does not lead to a class.
    """
    search = None if folder is None else [str(folder)]
    tree = SourceTree(search, outside=NOT_ADAPTERS, installed_first=folder is not None)
    methods: dict[str, Method] = {}
    values: dict[str, tuple[Any, Place]] = {}
    elsewhere: list[str] = []
    first: tuple[ClassSource, Place] | None = None
    on_instance = False
    for found in tree.lineage(module, name):
        if isinstance(found, Outside):
            if found.name.partition(".")[0] not in NOT_ADAPTERS:
                elsewhere.append(found.name or "?")
            continue
        file = _file_text(found.module, search, folder)
        first = first or (found, _place(file, found.node))
        names = tree.names(found.module)
        own = _Members(found.node, file, names.assigned if names else set())
        elsewhere += own.doubts
        on_instance |= own.capabilities_on_instance
        for key, method in own.methods.items():
            methods.setdefault(key, method)
        for key, value in own.values.items():
            values.setdefault(key, value)
    if first is None:
        return None
    source, place = first
    return AdapterFacts(
        name=source.node.name,
        place=place,
        methods=methods,
        bases_elsewhere=tuple(dict.fromkeys(elsewhere)),
        capabilities=_capabilities(module, name, folder),
        capabilities_on_instance=on_instance and ATTRIBUTE not in values,
        capabilities_place=values.get(ATTRIBUTE, (None, place))[1],
        decode_contract=values.get(_CONTRACT, (None, place))[0],
        several_groups="get_kv_cache_spec" in methods,
    )


class _Members:
    """What one class body binds."""

    def __init__(self, node: ast.ClassDef, file: str, assigned: set[str]) -> None:
        self.methods: dict[str, Method] = {}
        self.values: dict[str, tuple[Any, Place]] = {}
        self.doubts = ["?"] if node.keywords or any(not _keeps(one) for one in node.decorator_list) else []
        self.capabilities_on_instance = any(_is_self(one, ATTRIBUTE) for one in ast.walk(node))
        self._file = file
        for statement in statements(node.body):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.methods[statement.name] = _method(statement, file)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                self._assign(statement, statement.value)
        for name in assigned & set(self.methods):
            self.methods[name] = Method(name=name, kind="value", place=self.methods[name].place)
        if "__getattr__" in self.methods:
            self.doubts.append("?")

    def _assign(self, statement: ast.Assign | ast.AnnAssign, value: ast.expr) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        place = _place(self._file, statement)
        for target in targets:
            if not isinstance(target, ast.Name):
                continue
            other = self.methods.get(value.id) if isinstance(value, ast.Name) else None
            self.methods[target.id] = other or Method(name=target.id, kind="value", place=place)
            self.values[target.id] = (_literal(value), place)


def _method(node: Function, file: str) -> Method:
    names = [dotted(one.func if isinstance(one, ast.Call) else one).rpartition(".")[2] for one in node.decorator_list]
    kind = next((_KINDS[name] for name in names if name in _KINDS), "instance")
    kept = all(_keeps(one) or name in _KINDS for one, name in zip(node.decorator_list, names, strict=True))
    inner = list(_own_nodes(node))
    generates = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in inner)
    return Method(
        name=node.name,
        kind=kind,
        is_async=isinstance(node, ast.AsyncFunctionDef) and kept,
        is_generator=generates and kept,
        signature=_signature(node.args, drop_first=kind in ("instance", "class"))
        if kept and kind != "property"
        else None,
        body=_body(node, inner),
        place=_place(file, node),
    )


def _signature(args: ast.arguments, *, drop_first: bool) -> Signature:
    places = [*args.posonlyargs, *args.args]
    optional = len(places) - len(args.defaults)
    named = [
        Parameter(name=one.arg, required=index < optional, by_keyword=index >= len(args.posonlyargs))
        for index, one in enumerate(places)
    ]
    named = named[1:] if drop_first else named
    named += [
        Parameter(name=one.arg, required=default is None, by_position=False)
        for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return Signature(parameters=tuple(named), takes_args=args.vararg is not None, takes_kwargs=args.kwarg is not None)


def _body(node: Function, inner: list[ast.AST]) -> Body:
    mentions: set[str] = set()
    asserts: set[str] = set()
    for one in ast.walk(ast.Module(body=node.body, type_ignores=[])):
        if isinstance(one, ast.Name):
            mentions.add(one.id)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.isidentifier():
            mentions.add(one.value)
        elif isinstance(one, ast.Assert):
            asserts.update(inside.id for inside in ast.walk(one.test) if isinstance(inside, ast.Name))
    rest = node.args.kwarg
    returns = [one.value for one in inner if isinstance(one, ast.Return)]
    constant = _literal(returns[0]) if len(returns) == 1 and returns[0] is not None else UNKNOWN
    handed = rest is not None and rest.arg in _handed_on(node)
    return Body(mentions=frozenset(mentions), asserts=frozenset(asserts), hands_on=handed, constant=constant)


def _handed_on(node: Function) -> set[str]:
    """Names that go whole into a call."""
    names: set[str] = set()
    for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        names.update(value.id for value in values if isinstance(value, ast.Name))
    return names


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, those of functions and classes inside it excepted."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        one = pending.pop()
        yield one
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending += ast.iter_child_nodes(one)


def _keeps(decorator: ast.expr) -> bool:
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.partition(".")[0] == "torch" or name.rpartition(".")[2] in _TRANSPARENT


def _is_self(node: ast.AST, attribute: str) -> bool:
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == attribute
    return stored and isinstance(node.value, ast.Name) and node.value.id == "self"  # type: ignore[attr-defined]


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def _capabilities(module: str, name: str, folder: Path | None) -> Any:
    try:
        return declared_capabilities(module, name, None if folder is None else str(folder))
    except UnknownFromSource:
        return UNKNOWN


def _file_text(module: str, search: list[str] | None, folder: Path | None) -> str:
    file = find_module(module, search)
    if file is None:
        return ""
    return file.relative_to(folder).as_posix() if folder and file.is_relative_to(folder) else str(file)


def _place(file: str, node: ast.stmt) -> Place:
    return Place(file=file, line=node.lineno, column=node.col_offset + 1)
