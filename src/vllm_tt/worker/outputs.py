"""What an adapter's forward returned, in one form; anything else is an error that says what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    import numpy.typing as npt

    from vllm_tt.sampling.device import DeviceSampling

__all__ = ["Output", "UnexpectedOutput", "parse_logits", "parse_rope_deltas", "parse_tokens"]


class UnexpectedOutput(TTError):
    """{where} must return {expected}; got {found}."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Output:
    """The output of a call of n rows."""

    logits: torch.Tensor | None = None
    """[n, V] without device sampling, else of the rows that were asked for, [r, V]."""
    tokens: npt.NDArray[np.int32] | None = None
    """[n], with device sampling."""
    logprobs: npt.NDArray[np.float32] | None = None
    """Where a row asked: the chosen tokens' [n], or with ``indices`` the K likeliest's [n, K]."""
    indices: npt.NDArray[np.int32] | None = None
    rope_deltas: npt.NDArray[np.int64] | None = None
    """[n], of a prefill of a model with request-specific rotary state."""


def parse_logits(out: Any, where: str, rows: int) -> Output:
    """Logits of each row's last token."""
    if not isinstance(out, torch.Tensor) or out.dim() != 3 or out.shape[0] != rows:
        expected = f"host logits of {rows} rows, [{rows}, 1, vocabulary] or [{rows}, tokens, vocabulary]"
        raise UnexpectedOutput(where=where, expected=expected, found=_shown(out))
    return Output(logits=out[:, -1, :])


def parse_tokens(out: Any, where: str, rows: int, sampling: DeviceSampling) -> Output:
    """The rows' tokens, with what else was asked for."""
    parts = out if isinstance(out, tuple) else (out,)
    tokens = parts[0] if parts else None
    if (
        not isinstance(tokens, torch.Tensor)
        or tokens.dtype.is_floating_point
        or tokens.shape not in ((rows,), (rows, 1))
    ):
        expected = f"integer tokens of {rows} rows, [{rows}] or [{rows}, 1], for device sampling"
        raise UnexpectedOutput(where=where, expected=expected, found=_shown(tokens))
    logits = _row_logits(parts, where, len(sampling.logits_rows)) if sampling.logits_rows else None
    found = tokens.reshape(rows).numpy().astype(np.int32, copy=False)
    if not sampling.wants_logprobs:
        return Output(tokens=found, logits=logits)
    logprobs, indices = _logprobs(parts[1] if len(parts) > 1 else None, where, rows)
    return Output(tokens=found, logits=logits, logprobs=logprobs, indices=indices)


def parse_rope_deltas(out: Any, where: str, rows: int) -> tuple[Any, npt.NDArray[np.int64]]:
    """The output proper, and each row's delta."""
    deltas = out[1] if isinstance(out, tuple) and len(out) == 2 else None
    if isinstance(deltas, torch.Tensor):
        deltas = deltas.flatten().tolist()
    if not isinstance(deltas, (list, tuple, np.ndarray)) or len(deltas) != rows:
        expected = f"(output, rope_deltas) with a delta for each of {rows} rows: its rotary positions are its own"
        raise UnexpectedOutput(where=where, expected=expected, found=_shown(out))
    return out[0], np.array([int(delta) for delta in deltas], dtype=np.int64)


def _row_logits(parts: tuple[Any, ...], where: str, rows: int) -> torch.Tensor:
    logits = parts[2] if len(parts) == 3 else None
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or logits.shape[0] != rows:
        expected = f"(tokens, logprobs or None, logits [{rows}, vocabulary]) when it is sent logits_rows of {rows} rows"
        raise UnexpectedOutput(where=where, expected=expected, found=_shown(logits if len(parts) == 3 else parts))
    return logits


def _logprobs(found: Any, where: str, rows: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32] | None]:
    if isinstance(found, torch.Tensor) and found.shape in ((rows,), (rows, 1)):
        return found.reshape(rows).float().numpy(), None
    if isinstance(found, tuple) and len(found) == 2 and all(_is_table(one, rows) for one in found):
        logprobs, indices = found
        if logprobs.shape == indices.shape:
            return logprobs.float().numpy(), indices.numpy().astype(np.int32, copy=False)
    expected = (
        f"(tokens, logprobs) for rows with enable_log_probs: logprobs [{rows}] or [{rows}, 1] of the chosen tokens, "
        f"or (logprobs, indices) of the likeliest, [{rows}, K] each"
    )
    raise UnexpectedOutput(where=where, expected=expected, found=_shown(found))


def _is_table(value: Any, rows: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[0] == rows


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {list(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(_shown(one) for one in value)})"
    return "None" if value is None else type(value).__name__
