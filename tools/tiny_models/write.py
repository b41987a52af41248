"""Fills a model with random weights and saves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tools.tiny_models.families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__all__ = ["make", "spread", "write"]

GAIN = 2.0
"""How far a layer spreads what it is given. With that, tokens follow from all that came before them, and the likeliest
token stands out by far more than float32 rounds; the 0.02 of transformers makes nearly the same logits of any prompt.
"""
SHARPER = 1.0
"""Added to the weights of norms of query heads: a head then attends to few tokens, and not alike to all of them."""


def write(family: str, folder: Path, *, seed: int = 0) -> Path:
    """Save the model of ``family`` and what belongs to it, such as a processor, into ``folder``; returns it."""
    for part in make(family, seed=seed):
        part.save_pretrained(folder)
    return folder


def make(family: str, *, seed: int = 0) -> tuple[Any, ...]:
    """The model of ``family``, float32, and whatever is saved beside it. The same for the same ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, *beside = FAMILIES[family]()
        spread(model)
    return (model.eval(), *beside)


def spread(model: nn.Module) -> None:
    """Draw every matrix anew, by how many inputs it has, and move every vector a little."""
    for name, parameter in model.named_parameters():
        values = parameter.data
        if values.ndim == 1:
            values.add_(torch.randn_like(values), alpha=0.1)
            if name.endswith("q_norm.weight"):
                values.add_(SHARPER)
            continue
        # The weights of several experts are one tensor, each of them a matrix.
        inputs = values[0].numel() if values.ndim != 3 else values.shape[-1]
        values.normal_(std=GAIN * inputs**-0.5)
