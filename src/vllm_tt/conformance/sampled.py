"""What a device-sampled call asks for, and what it answers, in one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Answer", "Ask", "BadReturn", "params_of", "shown"]


class BadReturn(TTError):
    """{method}() must return {expected}, got {found}."""


def params_of(size: int, rows: Mapping[int, Mapping[str, Any]]) -> DeviceSamplingParams:
    """Parameters of ``size`` rows that take the likeliest token, but for the fields that ``rows`` gives a row."""
    params = DeviceSamplingParams.greedy(size)
    for row, values in rows.items():
        for name, value in values.items():
            getattr(params, name)[row] = value
    return params


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The sampling arguments of one call."""

    params: DeviceSamplingParams
    logits_rows: Sequence[int] = ()
    prompts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Tokens of rows for penalties to count; likewise ``outputs``."""
    outputs: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def greedy(cls, rows: int) -> Ask:
        return cls(params=DeviceSamplingParams.greedy(rows))

    @property
    def rows(self) -> int:
        return len(self.params.temperature)

    @property
    def wants_logprobs(self) -> bool:
        return any(self.params.enable_log_probs)

    def keywords(self) -> dict[str, Any]:
        """As the adapter takes them."""
        words: dict[str, Any] = {"sampling_params": self.params}
        if self.logits_rows:
            words["logits_rows"] = list(self.logits_rows)
        if self.prompts or self.outputs:
            words["prompt_tokens"] = self._padded(self.prompts)
            words["output_tokens"] = self._padded(self.outputs)
        return words

    def _padded(self, tokens: Mapping[int, Sequence[int]]) -> torch.Tensor:
        out = torch.full((self.rows, max([1, *map(len, tokens.values())])), -1, dtype=torch.int32)
        for row, known in tokens.items():
            out[row, : len(known)] = torch.tensor(known, dtype=torch.int32)
        return out


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answer:
    """What a call returned for its n rows."""

    tokens: list[int]
    logprobs: torch.Tensor | None
    """[n], or with ``indices`` [n, K]."""
    indices: torch.Tensor | None
    logits: torch.Tensor
    """Of the rows that were asked for, [r, V]."""

    @classmethod
    def of(cls, out: Any, method: str, ask: Ask, vocab_size: int) -> Answer:
        """From what ``method`` returned; raises BadReturn."""
        parts = out if isinstance(out, tuple) else (out,)
        rows = ask.rows
        tokens: Any = parts[0] if parts else None
        if not _is(tokens, (rows,), (rows, 1)) or tokens.is_floating_point():
            raise BadReturn(method=method, expected=f"tokens [{rows}] or [{rows}, 1]", found=shown(tokens))
        logits, logprobs, indices = torch.zeros(0, vocab_size), None, None
        if ask.logits_rows:
            logits = _logits(parts, method, len(ask.logits_rows), vocab_size)
        if ask.wants_logprobs:
            logprobs, indices = _logprobs(parts[1] if len(parts) > 1 else None, method, rows)
        return cls(tokens=tokens.reshape(rows).tolist(), logprobs=logprobs, indices=indices, logits=logits)


def _logits(parts: tuple[Any, ...], method: str, rows: int, vocab_size: int) -> torch.Tensor:
    found = parts[2] if len(parts) == 3 else None
    if isinstance(found, torch.Tensor) and found.dim() == 2 and len(found) == rows and found.shape[1] >= vocab_size:
        return found[:, :vocab_size].detach().float().clone()
    expected = f"(tokens, logprobs or None, logits [{rows}, {vocab_size}]) when it is sent {rows} logits_rows"
    raise BadReturn(method=method, expected=expected, found=shown(found if len(parts) == 3 else parts))


def _logprobs(found: Any, method: str, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    if _is(found, (rows,), (rows, 1)):
        return found.reshape(rows).float(), None
    pair: Any = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    logprobs, indices = pair
    if isinstance(logprobs, torch.Tensor) and logprobs.dim() == 2 and len(logprobs) == rows:
        width = logprobs.shape[1]
        if _is(indices, (rows, width)):
            return logprobs.float(), indices.long()
    expected = (
        f"(tokens, logprobs) where a row has enable_log_probs, logprobs [{rows}] or [{rows}, 1], or a pair of logprobs "
        f"and indices, [{rows}, K] each"
    )
    raise BadReturn(method=method, expected=expected, found=shown(found))


def _is(value: Any, *shapes: tuple[int, ...]) -> bool:
    return isinstance(value, torch.Tensor) and tuple(value.shape) in shapes


def shown(value: Any) -> str:
    """A tensor as dtype and shape; anything else as its type."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"a {type(value).__name__}" if value is not None else "None"
