"""One output of several: vLLM's records joined field by field, whatever fields its release has.

It happens several times a step, and most fields of most steps are empty: those cost next to nothing.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from operator import add, or_
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["merge_records", "merge_values"]

T = TypeVar("T")

_BY_GROUP = "num_common_prefix_blocks"
"""The one list that has an entry for each KV cache group instead of requests: it is not joined."""

_JOINS: dict[type, Callable[[Any, Any], Any]] = {
    bool: or_,
    int: add,
    float: add,
    list: add,
    set: or_,
    dict: or_,
}


def merge_records(records: Sequence[T]) -> T:
    """A new record of the same type: counts are added, flags or-ed, collections joined in the order given.

    None counts as absent, and what has no sum must be the same or absent in all.
    """
    first = records[0]
    if len(records) == 1:
        return first
    names = _names(type(first))  # type: ignore[arg-type]
    whole = {name: getattr(first, name) for name in names}
    nested: dict[str, list[Any]] = {}
    for record in records[1:]:
        for name in names:
            value, so_far = getattr(record, name), whole[name]
            if so_far and value:
                if (join := _JOINS.get(type(so_far))) is not None:
                    whole[name] = join(so_far, value)
                elif is_dataclass(so_far):
                    nested.setdefault(name, [so_far]).append(value)
            elif value or so_far is None:
                whole[name] = value
    for name, parts in nested.items():
        whole[name] = merge_records(parts)
    if _BY_GROUP in whole:
        whole[_BY_GROUP] = max((getattr(record, _BY_GROUP) for record in records), key=len)
    return type(first)(**whole)


def merge_values(values: Sequence[Any]) -> Any:
    """The values of one field, by the rules of `merge_records`; what only one of them has is taken over as it is."""
    whole = values[0]
    for value in values[1:]:
        if whole and value:
            if (join := _JOINS.get(type(whole))) is not None:
                whole = join(whole, value)
        elif value or whole is None:
            whole = value
    return whole


@cache
def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))
