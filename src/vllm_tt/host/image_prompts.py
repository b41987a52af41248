"""What a prefill of prompts with images needs beside its step: rotary positions, and which image goes where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vllm_tt.host.mrope import RowPositions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from vllm_tt.host.mrope import ImageTokens

    Pixels: TypeAlias = Sequence[Sequence[torch.Tensor | None] | None]
    Grids: TypeAlias = Sequence[Sequence[torch.Tensor] | None]
    """An item a row, of an item an image; None for a row without images."""

__all__ = ["ImagePrompts", "PlacedImage"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlacedImage:
    """One image to be computed."""

    tokens: slice
    """Which of the step's tokens it becomes."""
    patches: torch.Tensor
    """Float [patches, pixels of a patch]."""
    grid: torch.Tensor
    """Its patches of time, height and width, int64 [3]."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImagePrompts:
    """Of a step's tokens, flat as in `PrefillStep`."""

    positions: torch.Tensor
    """Rotary positions, int64 [3, t]."""
    deltas: torch.Tensor
    """How far those that follow each row are from positions, int64 [n]."""
    images: tuple[PlacedImage, ...]

    @classmethod
    def build(
        cls,
        layout: ImageTokens,
        tokens: torch.Tensor,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        pixel_values: Pixels | None = None,
        image_grid_thw: Grids | None = None,
    ) -> ImagePrompts:
        """From the contract's ``prefill_forward``: row i computes ``tokens[i, starts[i]:ends[i]]``.

        An image without pixels lies before its row's chunk and is needed for positions alone.
        """
        images: list[PlacedImage] = []
        positions, deltas, first = [], [], 0
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            grids = (image_grid_thw and image_grid_thw[i]) or ()
            pixels = (pixel_values and pixel_values[i]) or ()
            places = layout.places(tokens[i, :end], grids)
            row = RowPositions.of(end, places, grids, layout.merge)
            positions.append(row.positions[:, start:])
            deltas.append(row.delta)
            images += _placed(first - start, places, pixels, grids)
            first += end - start
        return cls(positions=torch.cat(positions, dim=1), deltas=torch.tensor(deltas), images=tuple(images))


def _placed(
    moved: int, places: Sequence[slice], pixels: Sequence[torch.Tensor | None], grids: Sequence[torch.Tensor]
) -> Iterator[PlacedImage]:
    for place, patches, grid in zip(places, pixels, grids, strict=True):
        if patches is not None:
            yield PlacedImage(tokens=slice(place.start + moved, place.stop + moved), patches=patches, grid=grid)
