"""The gated feed-forward block."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import nn
from torch.nn import functional

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["GatedMLP", "UnsupportedActivation"]

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class UnsupportedActivation(ConfigError):
    """The checkpoint's activation is {found!r}; the host blocks support {known}."""


class GatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))``, with the parameter names of Llama checkpoints."""

    def __init__(self, hidden_size: int, inner_size: int, *, activation: str, bias: bool) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise UnsupportedActivation(found=activation, known=", ".join(_ACTIVATIONS))
        self.activation = _ACTIVATIONS[activation]
        self.gate_proj = nn.Linear(hidden_size, inner_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, inner_size, bias=bias)
        self.down_proj = nn.Linear(inner_size, hidden_size, bias=bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activation(self.gate_proj(hidden)) * self.up_proj(hidden))
