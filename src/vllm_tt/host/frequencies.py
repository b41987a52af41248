"""Inverse frequencies of rotary embeddings, with the scalings that checkpoints declare.

The formulas and their float32 arithmetic are those of the reference implementation in
``transformers``, so that the same checkpoint gives the same tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Rope", "UnsupportedRope", "inverse_frequencies"]


class UnsupportedRope(ConfigError):
    """The checkpoint's rotary embedding declares {found}; the host blocks support {known}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rope:
    """What a checkpoint's configuration says about its rotary embedding."""

    kind: str
    dim: int
    """How many of a head's dimensions are rotated, the first ones."""
    theta: float
    max_positions: int
    values: Mapping[str, Any]
    """The scaling's own numbers: ``factor``, ``low_freq_factor``, ..."""

    @classmethod
    def from_config(cls, hf_config: Any, layer_type: str | None = None) -> Rope:
        """Read ``rope_parameters``, or the older ``rope_scaling`` beside ``rope_theta``.

        ``layer_type``: whose parameters, in a configuration that has some for each type of layer.
        """
        values = dict(getattr(hf_config, "rope_parameters", None) or getattr(hf_config, "rope_scaling", None) or {})
        values = values if layer_type is None else values[layer_type]
        kind = values.get("rope_type") or values.get("type") or "default"
        if kind not in _KINDS:
            raise UnsupportedRope(found=f"rope_type {kind!r}", known=", ".join(_KINDS))
        part = values.get("partial_rotary_factor") or getattr(hf_config, "partial_rotary_factor", None) or 1.0
        head_dim = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // hf_config.num_attention_heads
        theta = values.get("rope_theta") or getattr(hf_config, "rope_theta", None) or 10000.0
        return cls(
            kind=kind,
            dim=int(head_dim * part),
            theta=float(theta),
            max_positions=hf_config.max_position_embeddings,
            values=values,
        )

    @property
    def varies(self) -> bool:
        """The frequencies depend on how long a sequence is."""
        return self.kind in ("dynamic", "longrope")

    @property
    def original_positions(self) -> int:
        return self.values.get("original_max_position_embeddings") or self.max_positions

    def exponents(self) -> torch.Tensor:
        return torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim


def inverse_frequencies(rope: Rope, lengths: torch.Tensor | None = None) -> tuple[torch.Tensor, float]:
    """The inverse frequencies, float32 [dim / 2], and the factor that scales cosine and sine.

    With ``lengths`` [t], for kinds that vary: [t, dim / 2], for sequences of those lengths.
    """
    return _KINDS[rope.kind](rope, lengths)


def _default(rope: Rope, _lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    return 1.0 / (rope.theta ** rope.exponents()), 1.0


def _linear(rope: Rope, lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    plain, scale = _default(rope, lengths)
    return plain / rope.values["factor"], scale


def _dynamic(rope: Rope, lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    """The base grows with the sequence once it is longer than the model was trained for."""
    plain, scale = _default(rope, lengths)
    if lengths is None:
        return plain, scale
    factor, dim = rope.values["factor"], rope.dim
    stretch = factor * lengths / rope.max_positions - (factor - 1)
    base = rope.theta * stretch.clamp(min=1.0) ** (dim / (dim - 2))
    grown = 1.0 / (base[:, None] ** rope.exponents())
    return torch.where((lengths > rope.max_positions)[:, None], grown, plain), scale


def _longrope(rope: Rope, lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    original = rope.original_positions
    stretch = rope.values.get("factor") or rope.max_positions / original
    scale = rope.values.get("attention_factor")
    if scale is None:
        scale = 1.0 if stretch <= 1.0 else math.sqrt(1 + math.log(stretch) / math.log(original))
    short, long = (
        1.0 / (torch.tensor(rope.values[name], dtype=torch.float32) * rope.theta ** rope.exponents())
        for name in ("short_factor", "long_factor")
    )
    return short if lengths is None else torch.where((lengths > original)[:, None], long, short), scale


def _llama3(rope: Rope, lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    """Long waves are slowed down, short ones kept, those between interpolated."""
    plain, scale = _default(rope, lengths)
    factor, low, high = (rope.values[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = 2 * math.pi / plain
    smooth = (rope.original_positions / waves - low) / (high - low)
    between = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(waves > rope.original_positions / low, plain / factor, between)
    return torch.where(waves < rope.original_positions / high, plain, scaled), scale


def _yarn(rope: Rope, _lengths: torch.Tensor | None) -> tuple[torch.Tensor, float]:
    values, dim, original = rope.values, rope.dim, rope.original_positions
    factor = values.get("factor") or rope.max_positions / original

    def turns_at(rotations: float) -> float:
        """The dimension whose wave turns this often over the original length."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = turns_at(values.get("beta_fast") or 32), turns_at(values.get("beta_slow") or 1)
    if values.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    last = last + 0.001 if first == last else last
    keep = 1 - ((torch.arange(dim // 2, dtype=torch.float32) - first) / (last - first)).clamp(0, 1)
    periods = rope.theta ** rope.exponents()
    mixed = (1.0 / (factor * periods)) * (1 - keep) + (1.0 / periods) * keep
    return mixed, _yarn_scale(factor, values)


def _yarn_scale(factor: float, values: Mapping[str, Any]) -> float:
    if (given := values.get("attention_factor")) is not None:
        return float(given)

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if (own := values.get("mscale")) and (every := values.get("mscale_all_dim")):
        return magnitude(own) / magnitude(every)
    return magnitude(1.0)


_KINDS: dict[str, Callable[[Rope, torch.Tensor | None], tuple[torch.Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
