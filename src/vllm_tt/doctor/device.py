"""The devices of this machine, or the one that is emulated; found without opening anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.doctor.item import Item, note, ok, problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["devices"]

_NODES = Path("/dev/tenstorrent")
_SYSFS = Path("/sys/class/tenstorrent")
_UNSAFE = frozenset(" \t\n\"'`$&|;<>()[]{}*?!\\")


def devices(environ: Mapping[str, str], nodes: Path = _NODES, sysfs: Path = _SYSFS) -> Iterator[Item]:
    """What a server would open."""
    found = sorted(nodes.iterdir()) if nodes.is_dir() else []
    emulated = environ.get(env.EMULATE.name, "").strip()
    if emulated:
        yield ok("device", f"{emulated} is emulated (TT_EMULATE): operations do not compute")
        yield from _cache(environ)
        if found:
            yield note("device", f"{_count(found)} not used", "Unset TT_EMULATE to serve on them.")
    elif found:
        cards = ", ".join(_card(sysfs / f"tenstorrent!{node.name}") for node in found)
        yield ok("device", f"{_count(found)}: {cards}")
        yield from _access(found)
    else:
        remedy = "To serve without devices, set TT_EMULATE=N300. Else load the driver: ls /dev/tenstorrent; tt-smi."
        yield problem("device", "no Tenstorrent device (/dev/tenstorrent)", remedy)


def _count(found: list[Path]) -> str:
    return f"{len(found)} device{'' if len(found) == 1 else 's'}"


def _card(folder: Path) -> str:
    """The card's type, where the driver tells."""
    try:
        return (folder / "tt_card_type").read_text(encoding="ascii").strip()
    except OSError:
        return folder.name.partition("!")[2]


def _access(found: list[Path]) -> Iterator[Item]:
    for node in found:
        if not os.access(node, os.R_OK | os.W_OK):
            remedy = "Run as a user with access to it (udev rules, or --device of a container)."
            yield problem("device", f"{node} may not be opened", remedy)


def _cache(environ: Mapping[str, str]) -> Iterator[Item]:
    try:
        folder = env.CACHE_DIR.get(environ)
    except env.EnvError:
        return  # reported with the variables
    if unsafe := _UNSAFE.intersection(str(folder)):
        remedy = "Set TT_VLLM_CACHE to a folder without spaces and quotes."
        yield problem("emulation", f"the cache folder {folder} has {min(unsafe)!r} in its path", remedy)
