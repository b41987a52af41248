"""Imports the adapter class that a ``module:Class`` text names, a bundle's own file under a private name.

A module of a bundle is ``vllm_tt_bundles.<slug>.<module>``: two bundles with ``generator_vllm.py``
each get their own, and a bundle's ``json.py`` leaves the standard library's alone.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from vllm_tt import env
from vllm_tt.bundle.source import find_module
from vllm_tt.errors import TTError

__all__ = ["ClassMissing", "ImportFailed", "ModuleMissing", "NotAClass", "load_class", "module_name"]

NAMESPACE = "vllm_tt_bundles"


class ModuleMissing(TTError):
    """{owner}: there is no module {module!r} for main_class {main_class!r} (looked for {looked}). {remedy}"""


class ClassMissing(TTError):
    """{owner}: {file} has no class {name!r} for main_class {main_class!r}. {nearest}"""


class NotAClass(TTError):
    """{owner}: main_class {main_class!r} is {found}, not a class. Name the adapter class itself."""


class ImportFailed(TTError):
    """{owner}: importing {module!r} for main_class {main_class!r} failed at {place}: {cause}"""


def load_class(main_class: str, folder: Path | None, owner: str) -> type[Any]:
    """The class that ``main_class`` names, from the bundle in ``folder`` where that has the module.

    ``owner`` says in errors whose class it is. A module that the bundle does not have is imported as
    any other, with the bundle's folder last on ``sys.path``.
    """
    module, _, name = main_class.partition(":")
    facts = {"owner": owner, "main_class": main_class, "module": module}
    importlib.invalidate_caches()
    if folder is not None:
        _make_importable(folder)
    target = module_name(module, folder)
    try:
        loaded = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if not _is_part_of(error.name, target):
            raise _import_failed(error, folder, facts) from error
        raise ModuleMissing(**facts, looked=_looked_for(module, folder), remedy=_remedy(module)) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(error, folder, facts) from error
    found = getattr(loaded, name, None)
    if found is None:
        raise ClassMissing(**facts, file=loaded.__file__, name=name, nearest=_nearest(loaded, name))
    if not isinstance(found, type):
        raise NotAClass(**facts, found=f"a {type(found).__name__}")
    return found


def module_name(module: str, folder: Path | None) -> str:
    """The name that ``module`` is imported by: a private one when it is a file of the bundle in ``folder``."""
    if folder is None or find_module(module, [str(folder)]) is None:
        return module
    return f"{NAMESPACE}.{_slug(folder)}.{module}"


def _make_importable(folder: Path) -> None:
    """The bundle's private package, and its folder on ``sys.path`` for its absolute imports.

    Installed modules win over its helpers; its own win over other bundles', whose helpers of the
    same name must not answer for them.
    """
    for name, places in ((NAMESPACE, []), (f"{NAMESPACE}.{_slug(folder)}", [str(folder)])):
        if name not in sys.modules:
            package = ModuleType(name, "Adapters of model bundles.")
            package.__path__ = places
            sys.modules[name] = package
    others = [Path(one.__path__[0]) for key, one in sys.modules.items() if _is_bundle(key) and one.__path__]
    others.remove(folder)
    if str(folder) not in sys.path:
        place = min((sys.path.index(str(one)) for one in others if str(one) in sys.path), default=len(sys.path))
        sys.path.insert(place, str(folder))
    for key, loaded in list(sys.modules.items()):
        if any(_is_helper(key, getattr(loaded, "__file__", None), one) for one in others):
            del sys.modules[key]


def _is_bundle(name: str) -> bool:
    return name.startswith(NAMESPACE + ".") and name.count(".") == 1


def _is_helper(name: str, file: str | None, folder: Path) -> bool:
    """Whether a loaded module was found through the bundle's folder on ``sys.path``."""
    top = name.partition(".")[0]
    if not file or top == NAMESPACE or not Path(file).is_relative_to(folder):
        return False
    return Path(file).relative_to(folder).parts[0] in (top, top + ".py")


def _slug(folder: Path) -> str:
    text = str(folder)
    digest = hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
    return f"{re.sub(r'[^0-9A-Za-z]+', '_', folder.name)}_{digest}"


def _is_part_of(missing: str | None, target: str) -> bool:
    """Whether the missing module is the one asked for, or a package above it."""
    return missing is not None and (target == missing or target.startswith(missing + "."))


def _looked_for(module: str, folder: Path | None) -> str:
    path = module.replace(".", "/")
    inside = f"{path}.py and {path}/__init__.py in {folder}, then " if folder else ""
    return inside + "an installed module or one on PYTHONPATH"


def _remedy(module: str) -> str:
    if not module.startswith("models."):
        return "Check the name, and install the package that provides it."
    home = env.METAL_HOME.get()
    if home is None:
        return "It is part of tt-metal: set TT_METAL_HOME to a tt-metal checkout and put that on PYTHONPATH."
    if find_module(module, [str(home)]) is None:
        return f"It is part of tt-metal, and the checkout in TT_METAL_HOME={home} does not have it."
    return f"It is part of tt-metal: put the checkout on PYTHONPATH (PYTHONPATH={home})."


def _nearest(loaded: ModuleType, name: str) -> str:
    classes = sorted(
        key for key, value in vars(loaded).items() if isinstance(value, type) and value.__module__ == loaded.__name__
    )
    close = difflib.get_close_matches(name, classes, n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Its classes: {', '.join(classes)}." if classes else "It defines no class."


def _import_failed(error: BaseException, folder: Path | None, facts: dict[str, str]) -> ImportFailed:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if folder is not None and Path(frame.filename).is_relative_to(folder)]
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    elif last := (own or [one for one in frames if "importlib" not in one.filename])[-1:]:
        place = f"{last[0].filename}:{last[0].lineno}" + (f" ({last[0].line})" if last[0].line else "")
    else:
        place = "an unknown place"
    return ImportFailed(**facts, place=place, cause=f"{type(error).__name__}: {error}")
