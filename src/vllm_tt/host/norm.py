"""Root mean square normalisation."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["OffsetRMSNorm", "RMSNorm"]


class RMSNorm(nn.Module):
    """Normalises the last dimension in float32, scales in the model's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * _unit(hidden.float(), self.eps).to(hidden.dtype)


class OffsetRMSNorm(nn.Module):
    """Normalises and scales in float32, by weights that are stored as what they differ from one (Gemma)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return (_unit(hidden.float(), self.eps) * (1.0 + self.weight.float())).to(hidden.dtype)


def _unit(wide: torch.Tensor, eps: float) -> torch.Tensor:
    """``wide`` with a mean square of one in its last dimension."""
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
