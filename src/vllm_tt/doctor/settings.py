"""The environment variables, and the bundles they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.bundle.reading import path_text
from vllm_tt.bundle.source import find_module
from vllm_tt.doctor.item import Item, note, ok, problem
from vllm_tt.models.builtin_table import VARIANTS
from vllm_tt.models.resolve import resolve, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["bundles", "variables"]

_PLUGINS = "VLLM_PLUGINS"


def variables(environ: Mapping[str, str]) -> Iterator[Item]:
    """Values that cannot be read, and a plugin list that leaves us out."""
    for variable in env.VARIABLES:
        if not environ.get(variable.name, "").strip():
            continue
        try:
            variable.get(environ)
        except env.EnvError as error:
            facts = error.facts
            remedy = f"Expected {facts['expected']}. Unset it for the default ({facts['default']})."
            yield problem("environment", f"{variable.name}={environ[variable.name]}", remedy)
        else:
            yield ok("environment", f"{variable.name}={environ[variable.name]}")
    listed = environ.get(_PLUGINS)
    if listed is None:
        yield ok(_PLUGINS, "not set: all plugins are loaded")
    elif "tt" in listed.split(","):
        yield ok(_PLUGINS, listed)
    else:
        yield problem(_PLUGINS, f"{listed or 'empty'}: 'tt' is left out", "Add tt to the list, or unset the variable.")


def bundles(environ: Mapping[str, str]) -> Iterator[Item]:
    """Every bundle, and whether tt-metal's generators can be imported."""
    found = resolve(environ)
    for one in found.discovery.notices:
        yield problem("bundles", one.finding.message, one.finding.hint or "Correct EXTRA_MODELS_DIR.")
    for skipped in found.skipped:
        folder = path_text(skipped.folder)
        yield problem("bundle", f"{skipped.name} is skipped: {skipped.reason}", f"tt-bundle validate {folder}")
    for lost in found.shadowed:
        remedy = "Move one of the two to another folder."
        yield note("bundle", f"{lost.bundle.name} is shadowed: {lost.winner.origin} serves {lost.arch}", remedy)
    for entry in found.of_bundles:
        yield ok("bundle", f"{entry.origin.removeprefix('bundle ')}: {entry.arch} -> {entry.main_class}")
    for fault in found.faults.values():
        if isinstance(fault, env.EnvError):
            continue  # reported with the variables
        yield problem("models", " ".join(str(fault).split()), "Correct the variable, or unset it.")
    yield _builtins(found.builtins_on, environ)
    yield ok("models", summary(found))


def _builtins(on: bool, environ: Mapping[str, str]) -> Item:
    if not on:
        return ok("tt-metal", "its generators are switched off (TT_VLLM_BUILTIN_MODELS)")
    if find_module(next(iter(VARIANTS)).partition(":")[0], None) is not None:
        return ok("tt-metal", "its generators can be imported")
    home = environ.get(env.METAL_HOME.name)
    remedy = f"PYTHONPATH={home}" if home else "Put a tt-metal checkout on PYTHONPATH and into TT_METAL_HOME."
    return note("tt-metal", "its generators cannot be imported: bundles alone can be served", remedy)
