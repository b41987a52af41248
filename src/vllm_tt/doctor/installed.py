"""The packages that serving needs: installed, in a version that works, once, and with their entry points."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from vllm_tt._version import __version__
from vllm_tt.doctor.item import Item, note, ok, problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["VLLM_WINDOW", "entry_points", "packages"]

VLLM_WINDOW = SpecifierSet(">=0.25.1,<=0.33.0")
"""The releases of vLLM that this version is known to work with."""

_TTNN_WINDOW = SpecifierSet(">=0.75")
_ENTRY_POINTS = (
    ("vllm.platform_plugins", "vllm_tt.entrypoints:platform_plugin"),
    ("vllm.general_plugins", "vllm_tt.entrypoints:register"),
    ("vllm.stat_logger_plugins", "vllm_tt.platform.metrics:TTStatLogger"),
)


def packages(path: Sequence[str] | None = None) -> Iterator[Item]:
    """vllm-tt, vLLM, ttnn and torch, as they are found on ``path`` (``sys.path`` by default)."""
    places = list(sys.path if path is None else path)
    yield ok("vllm-tt", f"{__version__} in {Path(__file__).parents[1]}, Python {sys.version.split()[0]}")
    yield _package("vllm", "vllm", VLLM_WINDOW, places, "Install vLLM for the empty target (VLLM_TARGET_DEVICE=empty).")
    yield _package("ttnn", "ttnn", _TTNN_WINDOW, places, "Start from a tt-metal environment, or pip install ttnn.")
    yield _package("torch", "torch", None, places, "Install torch (the CPU build is enough).")
    if not _copies_of("torchvision", places):
        remedy = "Models that take images need it: install the torchvision that belongs to the installed torch."
        yield note("torchvision", "not installed", remedy)
    for module in ("vllm_tt", "vllm", "ttnn", "torch"):
        yield from _copies(module, places)


def entry_points(path: Sequence[str] | None = None) -> Iterator[Item]:
    """Whether vLLM finds our platform and our models, and no other platform beside ours."""
    places = list(sys.path if path is None else path)
    found = {
        (point.group, point.name, point.value)
        for one in metadata.distributions(path=places)
        for point in one.entry_points
    }
    for group, value in _ENTRY_POINTS:
        if (group, "tt", value) in found:
            yield ok("entry point", f"{group}: tt = {value}")
        else:
            yield problem(
                "entry point",
                f"{group} has no tt = {value}",
                "Install vllm-tt again: pip install --force-reinstall vllm-tt",
            )
    for group, name, value in sorted(found):
        if group == _ENTRY_POINTS[0][0] and value != _ENTRY_POINTS[0][1]:
            remedy = "vLLM starts only when one platform is active: uninstall the other, or set VLLM_PLUGINS=tt."
            yield note("entry point", f"another platform plugin: {name} = {value}", remedy)


def _package(name: str, module: str, window: SpecifierSet | None, places: list[str], remedy: str) -> Item:
    where = _copies_of(module, places)
    text = next((one.version for one in metadata.distributions(name=name, path=places)), None)
    if not where:
        return problem(name, "not installed", remedy)
    if text is None:
        return note(name, f"{where[0]}, of unknown version", "A checkout on PYTHONPATH is fine if it is a recent one.")
    found = f"{text} in {where[0]}"
    try:
        fits = window is None or window.contains(Version(text), prereleases=True)
    except InvalidVersion:
        return note(name, f"{found}: a version that cannot be compared")
    if fits:
        return ok(name, found)
    return problem(name, found, f"vllm-tt {__version__} works with {name}{_shown(window)}: install one of these.")


def _shown(window: SpecifierSet | None) -> str:
    return ",".join(sorted(map(str, window or ()), reverse=True))


def _copies(module: str, places: list[str]) -> Iterator[Item]:
    found = _copies_of(module, places)
    if len(found) > 1:
        others = ", ".join(map(str, found[1:]))
        remedy = "Uninstall the one that is not meant, or take it off PYTHONPATH."
        yield problem(module, f"found twice: {found[0]} is used, not {others}", remedy)
    for place in places if not found else ():
        folder = Path(place or ".") / module
        if folder.is_dir() and any(folder.glob("*.py")):
            yield problem(
                module, f"{folder} has no __init__.py: it is not the library", "Install it, or repair PYTHONPATH."
            )


def _copies_of(module: str, places: list[str]) -> list[Path]:
    """The places that hold the module, each once."""
    found: dict[Path, Path] = {}
    for place in places:
        init = Path(place or ".") / module / "__init__.py"
        if init.is_file():
            found.setdefault(init.resolve(), init.parent)
    return list(found.values())
