"""What to check: the message from the command's process to the one that runs the adapter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Request"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A check of one bundle's adapter with one checkpoint."""

    folder: str
    """The bundle's."""
    model: str
    """A checkpoint folder or Hub id."""
    mesh: str | None = None
    """A mesh name; None leaves it to the environment."""
    emulate: bool = True
    """On an emulated machine, not on devices."""
    dry_run: bool = False
    dtype: str | None = None
    """The KV cache's dtype; None takes the checkpoint's."""
    block_size: int = 64
    max_num_seqs: int = 8
    """Slots; of each lane, where there are several."""
    max_model_len: int = 512
    tolerance: float | None = None
    """How much logits may differ, as a part of their size; None goes by the dtype."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Request:
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
