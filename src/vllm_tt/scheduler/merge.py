"""One output of several: vLLM's records joined field by field, whatever fields its release has.

It happens several times a step, and most fields of most steps are empty: those cost next to nothing.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["merge_records", "merge_values"]

T = TypeVar("T")

_BY_GROUP = "num_common_prefix_blocks"
"""The one list that has an entry for each KV cache group instead of requests: the longest stands for all."""


def merge_records(records: Sequence[T]) -> T:
    """A new record of the same type: counts are added, flags or-ed, collections joined in the order given."""
    if len(records) == 1:
        return records[0]
    kind = type(records[0])
    names, pick = _fields(kind)  # type: ignore[arg-type]
    # Columns are picked without a line of Python for each of the fields.
    joined = [
        merge_values(values) if any(values) or values[0] is None else values[0]
        for values in zip(*map(pick, records), strict=True)
    ]
    whole = dict(zip(names, joined, strict=True))
    if _BY_GROUP in whole:
        whole[_BY_GROUP] = max([getattr(record, _BY_GROUP) for record in records], key=len)
    return kind(**whole)


def merge_values(values: Sequence[Any]) -> Any:
    """The values of one field; None counts as absent, and what has no sum must be the same or absent in all.

    What only one record has is taken over as it is.
    """
    filled = [value for value in values if value]
    if len(filled) > 1:
        first = filled[0]
        join = _JOINS.get(type(first))
        if join is not None:
            return join(filled)
        return merge_records(filled) if is_dataclass(first) else first
    return filled[0] if filled else next((value for value in values if value is not None), None)


def _join_lists(lists: Sequence[list[Any]]) -> list[Any]:
    return [*chain.from_iterable(lists)]


def _join_sets(sets: Sequence[set[Any]]) -> set[Any]:
    return set().union(*sets)


def _join_dicts(dicts: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    joined: dict[Any, Any] = {}
    for part in dicts:
        joined.update(part)
    return joined


_JOINS: dict[type, Callable[[Sequence[Any]], Any]] = {
    bool: any,
    int: sum,
    float: sum,
    list: _join_lists,
    set: _join_sets,
    dict: _join_dicts,
}


@cache
def _fields(record: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of a record's fields, and what picks their values."""
    names = tuple(field.name for field in fields(record))
    return names, attrgetter(*names)
