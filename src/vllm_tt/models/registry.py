"""The models that this process can serve: registered once in every vLLM process, selected by architecture."""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Any

from vllm_tt.bundle.findings import Reader
from vllm_tt.bundle.names import PREFIX, registered_name
from vllm_tt.bundle.reading import path_text
from vllm_tt.errors import ConfigError
from vllm_tt.log import get_logger
from vllm_tt.models.builtin_table import BUILTINS
from vllm_tt.models.resolve import Registry, count, resolve, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_tt.models.entry import Entry

__all__ = ["Registry", "TestModelRefused", "UnknownArchitecture", "register_all", "registry", "report", "select"]

log = get_logger(__name__)


class UnknownArchitecture(ConfigError):
    """No Tenstorrent model serves {architectures}. {nearest}{scanned}{skipped}{builtins}"""


class TestModelRefused(ConfigError):
    """{arch} is a test model: to serve it, set the option tt.register_test_models to true."""

    __test__ = False  # not a test case, whatever its name


@functools.cache
def register_all() -> Registry:
    """Find the models and register them with vLLM, once per process. Never raises.

    Only when vLLM runs on our platform: an environment may be shared with another one.
    """
    try:
        if not _platform_is_ours():
            return Registry()
        found = resolve()
        report(found)
        from vllm_tt.models import publish

        publish.publish(found.entries.values())
        publish.explain_unknown(lambda architectures: _unknown(found, architectures))
    except Exception:
        log.exception("the Tenstorrent models could not be registered")
        return Registry()
    return found


def registry() -> Registry:
    """The registry of this process."""
    return register_all()


def select(model_config: Any, *, test_models: bool = False) -> Entry:
    """The entry that serves a vLLM model configuration: the first of its architectures that is registered.

    The checkpoint may declare plain or prefixed names. Raises UnknownArchitecture, or the error that
    keeps the entry from being used.
    """
    return find(registry(), getattr(model_config.hf_config, "architectures", None) or (), test_models=test_models)


def find(found: Registry, architectures: Sequence[str], *, test_models: bool = False) -> Entry:
    """The entry of ``found`` that serves the first of ``architectures``; see ``select``."""
    names = [registered_name(arch) for arch in architectures]
    for name in ("", *names):
        if fault := found.faults.get(name):
            raise fault
        if entry := found.entries.get(name):
            if entry.test_model and not test_models:
                raise TestModelRefused(arch=entry.arch)
            if entry.variant is not None:
                entry.variant.check(entry.arch)
            return entry
    raise _unknown(found, architectures)


def report(found: Registry) -> None:
    """Log what was registered, what was not and why; one line for each thing to know."""
    levels = {Reader.SKIP: log.warning, Reader.WARN: log.warning, Reader.INFO: log.info, Reader.QUIET: log.debug}
    for notice in found.discovery.notices:
        levels[notice.finding.reader]("%s", notice.finding.message)
    for skipped in found.skipped:
        log.warning("%s", skipped.warning)
    for bundle in found.discovery.bundles:
        for one in bundle.findings:
            levels[one.reader]("Bundle %s: %s", path_text(bundle.folder), one.text)
    for entry in found.entries.values():
        if entry.bundle is not None:
            text = "Registered TT model %s -> %s (from EXTRA_MODELS_DIR/%s)"
            log.info(text, entry.arch, entry.main_class, entry.bundle.name)
        elif entry.source == "override":
            log.info("Registered TT model %s -> %s (from TT_MODEL_CLASS_OVERRIDES)", entry.arch, entry.main_class)
    for lost in found.shadowed:
        level = log.warning if lost.winner.source == "bundle" else log.info
        level("%s already registered by %s; ignoring bundle %s", lost.arch, lost.winner.origin, lost.bundle.name)
    for entry in found.replaced:
        log.info("%s overrides built-in %s -> %s", found.entries[entry.arch].origin, entry.arch, entry.main_class)
    for fault in found.faults.values():
        log.error("%s", fault)
    log.info("%s", summary(found))


def _unknown(found: Registry, architectures: Sequence[str]) -> UnknownArchitecture:
    known = [arch for arch, entry in found.entries.items() if not entry.test_model]
    near = [close for arch in architectures for close in difflib.get_close_matches(registered_name(arch), known, n=3)]
    if not known:
        nearest = "No model is registered at all."
    elif near:
        nearest = f"Nearest registered: {', '.join(dict.fromkeys(near))}."
    else:
        nearest = f"None of the {len(known)} registered architectures is close; 'tt-bundle list' shows them."
    return UnknownArchitecture(
        architectures=", ".join(architectures) or "a checkpoint that declares no architecture",
        nearest=nearest,
        scanned=_scanned(found),
        skipped="".join(f"\nSkipped bundle {path_text(one.folder)}: {one.reason}." for one in found.skipped),
        builtins="" if found.builtins_on else _without_builtins(found, architectures),
    )


def _scanned(found: Registry) -> str:
    if not found.discovery.folders:
        return "\nNo bundles were looked for: EXTRA_MODELS_DIR is not set."
    return "".join(
        f"\nScanned {path_text(folder)}: {count(_under(folder, found.discovery.bundles), 'bundle')}, "
        f"{_under(folder, found.skipped)} skipped."
        for folder in found.discovery.folders
    )


def _without_builtins(found: Registry, architectures: Sequence[str]) -> str:
    listed = {builtin.arch for builtin in BUILTINS if not builtin.test_model}
    off = [arch for arch in architectures if registered_name(arch) in listed]
    text = "\nTT_VLLM_BUILTIN_MODELS=0 leaves out the models built into tt-metal"
    text += f", {PREFIX + off[0].removeprefix(PREFIX)} among them" if off else ""
    if found.entries:
        return text + "."
    return text + ", and no bundle is registered: set EXTRA_MODELS_DIR to a folder of bundle folders, or unset it."


def _under(folder: Any, items: Iterable[Any]) -> int:
    return sum(item.folder.parent == folder for item in items)


def _platform_is_ours() -> bool:
    from vllm.platforms import current_platform

    package = __name__.partition(".")[0]
    return any(base.__module__.partition(".")[0] == package for base in type(current_platform).__mro__)
