"""Where pulled bundles go when nobody says: where this process, or tt-model, looks for bundles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.bundle.discover import folder_list

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["install_folder"]


def install_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The first folder of ``EXTRA_MODELS_DIR``, else tt-model's own. Absolute; it need not exist."""
    environ = os.environ if environ is None else environ
    if folders := folder_list(env.EXTRA_MODELS_DIR.get(environ)):
        return folders[0]
    if named := env.TT_MODEL_BUNDLES_DIR.get(environ):
        return named.expanduser().absolute()
    cache = Path.home() / ".cache"
    older = cache / "tt-kernel" / "bundles"
    return older if older.is_dir() else cache / "tt-model" / "bundles"
