"""Rotary positions of prompts with images: three coordinates a token, of time, height and width.

Text advances all three by one a token. An image's tokens keep the time at which it begins and take their row and column
from there; the text after it goes on past its longer side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vllm_tt.host.frequencies import UnsupportedRope, inverse_frequencies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.host.frequencies import Rope

__all__ = ["ImageTokens", "MultiRotaryEmbedding", "RowPositions"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageTokens:
    """How a model's prompts hold images."""

    token: int
    """The placeholder, once for each token that an image becomes."""
    merge: int
    """How many patches, each way, become one token."""

    def count(self, grid: torch.Tensor) -> int:
        """How many tokens an image with ``grid`` [3], patches of time, height and width, takes."""
        return int(grid.prod()) // self.merge**2

    def places(self, tokens: torch.Tensor, grids: Sequence[torch.Tensor]) -> list[slice]:
        """Where in a row's ``tokens`` [s] the images with ``grids`` are, in order."""
        held = (tokens == self.token).nonzero().flatten().tolist()
        places, at = [], 0
        for grid in grids:
            length = self.count(grid)
            places.append(slice(held[at], held[at] + length))
            at += length
        return places


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowPositions:
    """The coordinates of one row's tokens."""

    positions: torch.Tensor
    """int64 [3, s]"""
    delta: int
    """What is added to the place of a token after them, to get all three of its coordinates."""

    @classmethod
    def of(cls, length: int, places: Sequence[slice], grids: Sequence[torch.Tensor], merge: int) -> RowPositions:
        """Of ``length`` tokens with images of ``grids`` at ``places``."""
        parts, done, at = [], 0, 0
        for place, grid in zip(places, grids, strict=True):
            parts.append(_text(at, place.start - done))
            at += place.start - done
            frames, rows, columns = (int(side) // shrunk for side, shrunk in zip(grid, (1, merge, merge), strict=True))
            parts.append(at + torch.cartesian_prod(*map(torch.arange, (frames, rows, columns))).T)
            at += max(rows, columns)
            done = place.stop
        parts.append(_text(at, length - done))
        return cls(positions=torch.cat(parts, dim=1), delta=at - done)


def _text(start: int, length: int) -> torch.Tensor:
    return torch.arange(start, start + length).expand(3, -1)


class MultiRotaryEmbedding:
    """Cosines and sines for positions of three coordinates; computed once a step and shared by all layers."""

    def __init__(self, rope: Rope) -> None:
        if rope.varies:
            raise UnsupportedRope(found=f"rope_type {rope.kind!r} with mrope_section", known="those that do not vary")
        with torch.device("cpu"):  # models are built on the meta device
            self._frequencies, self._scale = inverse_frequencies(rope)
            sections = torch.tensor(rope.values["mrope_section"])
            self._coordinates = torch.arange(len(sections)).repeat_interleave(sections)

    def __call__(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [t, 1, head size] for ``positions`` [3, t]; each section turns by a coordinate of its own."""
        angles = positions[self._coordinates].T.float() * self._frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return (angles.cos() * self._scale).to(dtype), (angles.sin() * self._scale).to(dtype)
