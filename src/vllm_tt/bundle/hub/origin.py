"""Where an installed bundle came from, in a hidden file inside it: not shipped, not locked, gone with the folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from vllm_tt.bundle.files import ORIGIN_NAME

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ORIGIN_NAME", "Origin", "read_origin", "write_origin"]

_MAX_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The commit that a folder holds."""

    repo: str
    commit: str
    """Full sha."""
    revision: str
    """The branch, tag or commit that was asked for."""
    bundle: str | None = None
    """Which of the repository's bundles, where it holds several."""


def read_origin(folder: Path) -> Origin | None:
    """What the folder's record says; None without a record, or with one that cannot be read."""
    try:
        with (folder / ORIGIN_NAME).open("rb") as file:
            root = json.loads(file.read(_MAX_BYTES))
        origin = Origin(**root)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = (origin.repo, origin.commit, origin.revision, origin.bundle or "")
    return origin if all(isinstance(text, str) for text in texts) else None


def write_origin(folder: Path, origin: Origin) -> None:
    """Record ``origin`` in the folder."""
    (folder / ORIGIN_NAME).write_text(json.dumps(asdict(origin), indent=2) + "\n", encoding="utf-8")
