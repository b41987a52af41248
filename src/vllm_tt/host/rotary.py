"""Rotary position embedding over a flat batch of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vllm_tt.host.frequencies import inverse_frequencies

if TYPE_CHECKING:
    from vllm_tt.host.frequencies import Rope

__all__ = ["RotaryEmbedding", "rotate"]


class RotaryEmbedding:
    """Cosines and sines for positions; computed once a step and shared by all layers."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        with torch.device("cpu"):  # models are built on the meta device
            self._fixed, self._scale = inverse_frequencies(rope)

    def __call__(
        self, positions: torch.Tensor, lengths: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [t, 1, rotated dimensions] for int ``positions`` [t] of sequences of ``lengths`` [t]."""
        frequencies = inverse_frequencies(self._rope, lengths)[0] if self._rope.varies else self._fixed
        angles = positions[:, None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return (angles.cos() * self._scale).to(dtype), (angles.sin() * self._scale).to(dtype)


def rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate the first dimensions of heads ``x`` [t, heads, head size], as many as ``rotation`` has.

    Of these, dimension i is paired with i + half their number.
    """
    cos, sin = rotation
    turned, kept = x.split((cos.shape[-1], x.shape[-1] - cos.shape[-1]), dim=-1)
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, kept), dim=-1) if kept.shape[-1] else turned
