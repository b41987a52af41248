"""One output of several: vLLM's records joined field by field, whatever fields its release has."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["merge_records", "merge_values"]

T = TypeVar("T")

_LONGEST = ("num_common_prefix_blocks",)
"""Lists that are not of requests: the longest stands for all."""


def merge_records(records: Sequence[T]) -> T:
    """A new record of the same type: counts are added, flags or-ed, collections joined in the order given."""
    first = records[0]
    if len(records) == 1:
        return first
    joined: dict[str, Any] = {}
    for field in fields(first):  # type: ignore[arg-type]
        values = [getattr(record, field.name) for record in records]
        joined[field.name] = max(values, key=len) if field.name in _LONGEST else merge_values(values)
    return type(first)(**joined)


def merge_values(values: Sequence[Any]) -> Any:
    """The values of one field; None counts as absent, and what has no sum must be the same or absent in all."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    first = present[0]
    match first:
        case bool():
            return any(present)
        case int() | float():
            return sum(present)
        case list():
            return [item for value in present for item in value]
        case set() | frozenset():
            return type(first)().union(*present)
        case dict():
            return {key: item for value in present for key, item in value.items()}
    return merge_records(present) if is_dataclass(first) else first
