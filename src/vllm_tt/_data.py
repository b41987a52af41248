"""Where the files that ship beside the code are: in a wheel under ``_data``, in a checkout at its root."""

from __future__ import annotations

from pathlib import Path

from vllm_tt.errors import TTError

__all__ = ["DataMissing", "data_path"]


class DataMissing(TTError):
    """The installation of vllm-tt is incomplete: {name!r} is in none of {places}. Install it again."""


def data_path(name: str) -> Path:
    """The path of a shipped folder or file, such as ``schemas`` or ``bundles/llama-host``."""
    package = Path(__file__).resolve().parent
    places = (package / "_data" / name, package.parents[1] / name)
    for place in places:
        if place.exists():
            return place
    raise DataMissing(name=name, places=", ".join(map(str, places)))
