"""One explanation, and tables of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Explanation", "table"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a finding is reported, what it looks like, and what to do about it."""

    cause: str
    example: str
    fix: str


def table(*rows: tuple[str, str, str, str]) -> dict[str, Explanation]:
    """Explanations by code, from rows of code, cause, example and fix."""
    return {code: Explanation(cause=cause, example=example, fix=fix) for code, cause, example, fix in rows}
