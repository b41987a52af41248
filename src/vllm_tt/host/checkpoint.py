"""Finds the folder that a model's weights are in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_tt import env
from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CheckpointNotFound", "checkpoint_folder"]


class CheckpointNotFound(ConfigError):
    """No weights for {name!r} ({source}): expected a folder that exists, or a Hub model that is
    reachable or already downloaded. {cause}
    """


def checkpoint_folder(hf_config: Any, environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the served model: ``HF_MODEL`` where set, else where its configuration was read from.

    A Hub id is resolved to its local snapshot, and downloaded unless the Hub is switched off.
    """
    chosen = env.HF_MODEL.get(environ)
    name = chosen or str(getattr(hf_config, "_name_or_path", "") or "")
    source = env.HF_MODEL.name if chosen else "the model being served"
    if not name:
        raise CheckpointNotFound(name=name, source=source, cause=f"Set {env.HF_MODEL.name}.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith((os.sep, ".", "~")):
        raise CheckpointNotFound(name=name, source=source, cause="There is no such folder.")
    revision = None if chosen else getattr(hf_config, "_commit_hash", None)
    return _snapshot(name, revision, source)


def _snapshot(name: str, revision: str | None, source: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=["*.safetensors", "*.json"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise CheckpointNotFound(name=name, source=source, cause=f"{type(error).__name__}: {error}") from error
