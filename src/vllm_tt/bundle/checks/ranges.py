"""Whether a version range (PEP 440) has any version in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.version import Version

__all__ = ["is_empty"]


def is_empty(text: str) -> bool:
    """Whether no version is in the range; only the versions around its bounds need to be tried."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    try:
        allowed = SpecifierSet(text)
    except InvalidSpecifier:
        return False
    bounds = [_bound(one.version) for one in allowed]
    if None in bounds:
        return False
    near = [text for bound in bounds if bound is not None for text in _around(bound)]
    return not any(allowed.contains(Version(text), prereleases=True) for text in (*near, "0.dev0", "99999"))


def _bound(text: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text.removesuffix(".*"))
    except InvalidVersion:  # '===' takes any text
        return None


def _around(bound: Version) -> Iterator[str]:
    """The bound and versions right below and above it."""
    yield str(bound)
    parts = list(bound.release)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    *head, last = parts
    epoch = f"{bound.epoch}!" if bound.epoch else ""
    for release, suffixes in (
        ([*head, last], ("", ".dev0", ".post999", ".99999")),
        ([*head, last + 1], ("",)),
        ([*head, max(last - 1, 0)], ("", ".99999")),
    ):
        yield from (epoch + ".".join(map(str, release)) + suffix for suffix in suffixes)
