"""Whether this installation meets what a bundle's metadata requires.

Nothing is imported: versions come from the installed distributions' own metadata.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from vllm_tt._version import __version__
from vllm_tt.bundle.findings import Finding, finding, shown

if TYPE_CHECKING:
    from vllm_tt.bundle.metadata import Requires

__all__ = ["Installed", "check_requires"]


class Installed:
    """The installed versions, each looked up once."""

    def __init__(self) -> None:
        self.checked: dict[tuple[str, str], Finding | None] = {}
        """Results by requirement and range: many bundles ask for the same."""
        self._versions: dict[str, str | None] = {"python": platform.python_version(), "vllm-tt": __version__}

    def version(self, name: str) -> str | None:
        """The version of a distribution, or None when it is not installed."""
        if name not in self._versions:
            from importlib import metadata as distributions  # slow to import, and most bundles require nothing

            try:
                self._versions[name] = distributions.version(name)
            except (distributions.PackageNotFoundError, ValueError):
                self._versions[name] = None
        return self._versions[name]


def check_requires(requires: Requires, installed: Installed) -> list[Finding]:
    """The requirements that cannot be read, are not met, or cannot be checked here.

    A source build of vLLM or ttnn may have no version to compare: that is no reason to refuse.
    """
    ranges = (
        ("python", requires.python),
        ("vllm", requires.vllm),
        ("ttnn", requires.ttnn),
        ("vllm-tt", requires.vllm_tt),
    )
    asked = [(name, text) for name, text in ranges if text is not None]
    asked += [("", text) for text in requires.packages]
    for name, text in asked:
        if (name, text) not in installed.checked:
            installed.checked[name, text] = _range(name, text, installed) if name else _package(text, installed)
    findings = [installed.checked[one] for one in asked]
    return [found for found in findings if found is not None]


def _range(name: str, text: str, installed: Installed) -> Finding | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    key = ("requires", name)
    try:
        allowed = SpecifierSet(text)
    except InvalidSpecifier:
        return finding("TB701", f"requires.{name}: invalid specifier {shown(text)}", key=key)
    found = installed.version(name)
    try:
        met = found is None or allowed.contains(Version(found), prereleases=True)
    except InvalidVersion:
        found = None
    if found is None:
        return finding("TB703", f"needs {name}{allowed}, whose version is not known here", key=key)
    return None if met else finding("TB702", f"needs {name}{allowed}, found {found}", key=key)


def _package(text: str, installed: Installed) -> Finding | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    key = ("requires", "packages")
    try:
        wanted = Requirement(text)
        applies = wanted.marker is None or wanted.marker.evaluate()
    except (InvalidRequirement, ValueError):
        return finding("TB701", f"requires.packages: invalid requirement {shown(text)}", key=key)
    if not applies:
        return None
    found = installed.version(wanted.name)
    if found is None:
        return finding("TB704", f"needs the package {wanted.name!r}, which is not installed", key=key)
    try:
        met = wanted.specifier.contains(Version(found), prereleases=True)
    except InvalidVersion:
        return finding("TB703", f"needs {wanted.name}{wanted.specifier}, whose version is not known here", key=key)
    return None if met else finding("TB702", f"needs {wanted.name}{wanted.specifier}, found {found}", key=key)
