"""One output of several: vLLM's records joined field by field, whatever fields its release has."""

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

_LONGEST = ("num_common_prefix_blocks",)
"""Lists that are not of requests: the longest stands for all."""


def merge_records(records: Sequence[T]) -> T:
    """A new record of the same type: counts are added, flags or-ed, collections joined in the order given."""
    kind = type(records[0])
    if len(records) == 1:
        return records[0]
    # Once a step: columns are picked without a line of Python for each of the fields.
    names, pick = _fields(kind)  # type: ignore[arg-type]
    columns = zip(*map(pick, records), strict=True)
    joined = {
        name: max(values, key=len) if name in _LONGEST else merge_values(values)
        for name, values in zip(names, columns, strict=True)
    }
    return kind(**joined)


def merge_values(values: Sequence[Any]) -> Any:
    """The values of one field; None counts as absent, and what has no sum must be the same or absent in all.

    What only one record has is taken over as it is.
    """
    if not any(values):
        return values[0] if values[0] is not None else next((value for value in values if value is not None), None)
    filled = [value for value in values if value]
    first = filled[0]
    if len(filled) == 1:
        return first
    match first:
        case bool():
            return True
        case int() | float():
            return sum(filled)
        case list():
            return [*chain.from_iterable(filled)]
        case set() | frozenset():
            return type(first)().union(*filled)
        case dict():
            return {key: item for value in filled for key, item in value.items()}
    return merge_records(filled) if is_dataclass(first) else first


@cache
def _fields(record: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of a record's fields, and what picks their values."""
    names = tuple(field.name for field in fields(record))
    return names, attrgetter(*names)
