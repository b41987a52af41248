"""Whether a token is one that its logits allow, up to the arithmetic of the adapter's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["drawn_outside", "no_token", "not_the_likeliest", "slack"]


def slack(logits: torch.Tensor, tolerance: float) -> float:
    """How much one of ``logits`` [V] may be off."""
    return tolerance * float((logits - logits.mean()).abs().max())


def no_token(token: int, vocab_size: int) -> str | None:
    return None if 0 <= token < vocab_size else f"sampled token {token}, which is not in the vocabulary"


def not_the_likeliest(token: int, logits: torch.Tensor, tolerance: float) -> str | None:
    """What is wrong with a token that was to be the likeliest, or None."""
    if fault := no_token(token, len(logits)):
        return fault
    best = int(logits.argmax())
    if float(logits[best] - logits[token]) <= slack(logits, tolerance):
        return None
    return f"sampled token {token}; the host's logits are highest for token {best}"


def drawn_outside(token: int, logits: torch.Tensor, top_k: int, tolerance: float) -> str | None:
    """What is wrong with a token that was drawn from the ``top_k`` likeliest, or None."""
    if fault := no_token(token, len(logits)):
        return fault
    least = float(logits.topk(top_k).values[-1])
    if float(logits[token]) >= least - slack(logits, tolerance):
        return None
    return f"drew token {token}, which is not among the {top_k} likeliest"
