"""What one forward call is given, as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vllm_tt.batch.images import Image

__all__ = ["DecodeInput", "PrefillInput"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PrefillInput:
    """n prompts, or chunks of prompts, in the plan's row order."""

    tokens: torch.Tensor
    """int32 [n, longest end]: each row from the prompt's first token, zero padded."""
    page_tables: tuple[torch.Tensor, ...]
    """For each KV cache group: int32 [n, pages of the longest request]."""
    prompt_lens: npt.NDArray[np.int64]
    """[n]: end of the chunk."""
    start_pos: npt.NDArray[np.int64]
    """[n]: tokens already computed."""
    empty_slots: list[int]
    """The device slot of each row."""
    images: tuple[tuple[Image, ...], ...] = ()
    """Of each row, the images that begin before the end of its chunk."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodeInput:
    """One token for each of B slots, indexed by slot."""

    tokens: torch.Tensor
    """int32 [B, 1]; 0 for a slot that is not decoding."""
    page_tables: tuple[torch.Tensor, ...]
    """For each KV cache group: int32 [B, pages of the longest request]; null pages for a slot that is not decoding."""
    start_pos: torch.Tensor
    """int32 [B]: position of the token; -1 for a slot that is not decoding."""
    rope_deltas: npt.NDArray[np.int64] | None = None
    """[B]: how far each slot's rotary positions are ahead of its positions; the rows' own array."""
