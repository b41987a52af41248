"""Decides which class serves each architecture: overrides before bundles before built-ins.

Pure: the environment and a scan go in, the registry comes out. It never raises; what cannot be
resolved is kept beside the entries, to be raised when a model that needs it is selected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.bundle.discover import Bundle, Discovery, Skipped, discover
from vllm_tt.bundle.names import PREFIX, registered_name
from vllm_tt.bundle.reading import path_text
from vllm_tt.models.builtin import SelectorError
from vllm_tt.models.builtin_table import BUILTINS
from vllm_tt.models.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from vllm_tt.env import Variable
    from vllm_tt.errors import TTError

    T = TypeVar("T")

__all__ = ["Registry", "Shadowed", "builtin_entries", "count", "resolve", "summary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shadowed:
    """An architecture of a bundle that another entry serves."""

    bundle: Bundle
    arch: str
    winner: Entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry:
    """What this process can serve, and why not the rest."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    """By registered (prefixed) name."""
    discovery: Discovery = field(default_factory=Discovery)
    shadowed: tuple[Shadowed, ...] = ()
    replaced: tuple[Entry, ...] = ()
    """Built-in models that a bundle or an override replaces."""
    faults: Mapping[str, TTError] = field(default_factory=dict)
    """Errors to raise when one of these registered names is selected; under "" those of any selection."""
    builtins_on: bool = True

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The bundles that could not be registered."""
        return self.discovery.skipped

    @property
    def of_bundles(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries.values() if entry.source == "bundle")


def resolve(environ: Mapping[str, str] | None = None) -> Registry:
    """The registry of an environment (the process's own by default)."""
    faults: dict[str, TTError] = {}
    builtins_on = _read(env.BUILTIN_MODELS, environ, faults, otherwise=True)
    builtins = builtin_entries(environ, faults) if builtins_on else {}
    discovery = discover(
        _read(env.EXTRA_MODELS_DIR, environ, faults, otherwise=None),
        ignore_requires=_read(env.IGNORE_REQUIRES, environ, faults, otherwise=False),
    )
    overrides = _read(env.CLASS_OVERRIDES, environ, faults, otherwise={})
    entries = {registered_name(arch): _override(arch, path) for arch, path in overrides.items()}
    shadowed: list[Shadowed] = []
    for bundle in discovery.bundles:
        for arch in bundle.metadata.architectures:
            entry = Entry.of_bundle(arch, bundle)
            if winner := entries.get(entry.arch):
                shadowed.append(Shadowed(bundle=bundle, arch=entry.arch, winner=winner))
            else:
                entries[entry.arch] = entry
    replaced = tuple(entry for arch, entry in builtins.items() if arch in entries)
    return Registry(
        entries={**entries, **{arch: entry for arch, entry in builtins.items() if arch not in entries}},
        discovery=discovery,
        shadowed=tuple(shadowed),
        replaced=replaced,
        faults={arch: fault for arch, fault in faults.items() if arch not in entries},
        builtins_on=builtins_on,
    )


def builtin_entries(
    environ: Mapping[str, str] | None = None, faults: dict[str, TTError] | None = None
) -> dict[str, Entry]:
    """The entries of tt-metal's generators as the environment selects them.

    One whose selector has no valid value is left out, its error put into ``faults`` under its name;
    without ``faults`` the error is raised.
    """
    entries = {}
    for builtin in BUILTINS:
        try:
            value = builtin.choose(environ)
        except SelectorError as error:
            if faults is None:
                raise
            faults[builtin.arch] = error
            continue
        entries[builtin.arch] = Entry(
            arch=builtin.arch,
            plain=builtin.arch.removeprefix(PREFIX),
            main_class=builtin.variants[value].main_class,
            source="builtin",
            text_only=builtin.text_only,
            test_model=builtin.test_model,
        )
    return entries


def summary(found: Registry) -> str:
    """One line: how many architectures from how many folders, how many bundles skipped, which built-ins."""
    entries = found.of_bundles
    folders = len({entry.folder for entry in entries})
    places = ", ".join(map(path_text, found.discovery.folders)) or "EXTRA_MODELS_DIR is not set"
    builtins = sum(entry.source == "builtin" and not entry.test_model for entry in found.entries.values())
    others = f"{builtins} built in" if found.builtins_on else "built-in models are off (TT_VLLM_BUILTIN_MODELS)"
    return (
        f"TT models: {count(len(entries), 'architecture')} from {count(folders, 'folder')}, "
        f"{len(found.skipped)} skipped ({places}); {others}"
    )


def count(number: int, noun: str) -> str:
    """``1 bundle``, ``2 bundles``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _override(arch: str, path: str) -> Entry:
    plain = None if arch.startswith(PREFIX) else arch
    return Entry(arch=registered_name(arch), plain=plain, main_class=path, source="override")


def _read(variable: Variable[T], environ: Mapping[str, str] | None, faults: dict[str, TTError], *, otherwise: T) -> T:
    try:
        return variable.get(environ)
    except env.EnvError as error:
        faults.setdefault("", error)
        return otherwise
