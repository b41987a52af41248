"""The functions that vLLM finds through the package's entry points, in every one of its processes.

vLLM swallows what they raise, so each failure is logged here with its cause and remedy. Importing
this module costs nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.logger import _VllmLogger

__all__ = ["ENTRY_POINT", "PLATFORM", "platform_plugin", "register"]

ENTRY_POINT = "tt"
"""The name of both entry points in ``VLLM_PLUGINS``."""
PLATFORM = "vllm_tt.platform.platform.TTPlatform"


def platform_plugin() -> str | None:
    """The platform's qualified name when ``ttnn`` is installed, else None.

    Runs twice in each process and never imports ``ttnn``: a library that is found but does not load
    is reported by the worker, the first to need it.
    """
    log = _log()
    try:
        where = _find_ttnn()
    except Exception:
        log.exception(
            "ttnn is installed but cannot be located, so the Tenstorrent platform stays off. "
            "Reinstall it (pip install --force-reinstall ttnn) or repair the tt-metal build on PYTHONPATH"
        )
        return None
    if where is None:
        log.info("ttnn is not installed: the Tenstorrent platform stays off (pip install ttnn to use it)")
        return None
    if where:
        log.error(
            "the folder %s hides the ttnn library: it has no __init__.py. Start vLLM from another folder or "
            "put the folder that holds the library first on PYTHONPATH; the Tenstorrent platform stays off",
            where,
        )
        return None
    _prepare(log)
    return PLATFORM


def register() -> None:
    """Register the models, when the Tenstorrent platform is the active one. Never raises; repeating it is harmless."""
    log = _log()
    try:
        from vllm.platforms import current_platform

        from vllm_tt.platform.platform import TTPlatform

        if isinstance(current_platform, TTPlatform):
            from vllm_tt.models import registry
            from vllm_tt.platform import compat

            compat.pin_v1_runner()
            registry.register_all()
        elif (inactive := _why_inactive(type(current_platform))) is not None:
            log.warning_once("%s", inactive)
    except Exception:
        log.exception("no Tenstorrent model could be registered; a model that needs one will not be found")


def _log() -> _VllmLogger:
    """A logger that vLLM's handlers show, which vLLM may not have set up yet."""
    from vllm.logger import init_logger

    return init_logger("vllm.tt.entrypoints")


def _find_ttnn() -> str | None:
    """None when ``ttnn`` is not installed, else the folder that hides it, empty when it is a library."""
    if sys.modules.get("ttnn") is not None:
        return ""
    spec = importlib.util.find_spec("ttnn")
    if spec is None:
        return None
    return "" if spec.origin else next(iter(spec.submodule_search_locations or ()), "?")


def _prepare(log: _VllmLogger) -> None:
    """What must be set before anything imports ``ttnn`` or asks vLLM for Triton."""
    from vllm_tt import emulation

    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # vLLM takes the empty value for a GPU build and would sample with Triton kernels.
        del os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        emulation.prepare()
    except Exception as fault:  # noqa: BLE001
        # The platform stays on: it repeats this when a server is configured, where the error stops the start.
        log.error("the emulated mesh cannot be prepared: %s", fault)


def _why_inactive(active: type) -> str | None:
    """Why the Tenstorrent platform is not the active one, when the user can do something about it."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and ENTRY_POINT not in allowed.split(","):
        return (
            f"VLLM_PLUGINS={allowed} leaves out {ENTRY_POINT!r}: the Tenstorrent platform and its models stay off. "
            f"Add {ENTRY_POINT!r} to the list; it covers the model registry too"
        )
    try:
        usable = _find_ttnn() == ""
    except Exception:  # noqa: BLE001
        usable = False
    if not usable:
        return None  # platform_plugin has said why
    return (
        f"ttnn is installed, yet vLLM runs on {active.__module__}.{active.__qualname__}: the Tenstorrent models "
        "stay off. Look for an error above, or uninstall the other platform plugin"
    )
