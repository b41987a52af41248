"""``sampling_params`` that a device can take: of the right form, and within what it declares."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from paged_hash_checks import require

from vllm_tt.contract import DeviceSamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Limits", "Row", "check_neutral", "check_parameters", "rows_of"]

_NAMES = [one.name for one in fields(DeviceSamplingParams)]
_TYPES: dict[str, tuple[type, ...]] = {
    "temperature": (float,),
    "top_k": (int,),
    "top_p": (float,),
    "presence_penalty": (float,),
    "frequency_penalty": (float,),
    "repetition_penalty": (float,),
    "seed": (int, type(None)),
    "enable_log_probs": (bool,),
    "num_logprobs": (int,),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the sampler declares."""

    vocab_size: int
    top_k: int | None
    logprobs: int | None
    penalties: bool

    @classmethod
    def of(cls, capabilities: Mapping[str, Any], vocab_size: int, chips: int) -> Limits:
        """``chips`` of a lane: on some meshes a device gives the chosen token's logprob, declared or not."""
        return cls(
            vocab_size,
            capabilities.get("max_device_top_k"),
            capabilities.get("max_device_logprobs", 0 if chips in (8, 32) else None),
            capabilities.get("supports_device_penalties", True),
        )


@dataclass(frozen=True, slots=True)
class Row:
    """The parameters of one row."""

    temperature: float
    top_k: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    enable_log_probs: bool
    num_logprobs: int

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        return (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)

    @property
    def neutral(self) -> bool:
        """Whether it says nothing, as an idle slot's must."""
        return replace(self, top_p=1.0) == _NEUTRAL


def rows_of(params: DeviceSamplingParams) -> list[Row]:
    return [Row(*values) for values in zip(*(getattr(params, name) for name in _NAMES), strict=True)]


_NEUTRAL = rows_of(DeviceSamplingParams.greedy(1))[0]


def check_parameters(params: Any, count: int, limits: Limits) -> list[Row]:
    """The rows of ``params``, which must be of ``count`` rows and within the limits."""
    fine = isinstance(params, DeviceSamplingParams)
    require(fine, "sampling_params must be DeviceSamplingParams, got {got!r}", got=params)
    for name, types in _TYPES.items():
        values = getattr(params, name)
        fine = type(values) is list and all(type(value) in types for value in values)
        kinds = " or ".join(one.__name__ for one in types)
        require(fine, "{name} must be a list of {kinds}, got {got!r}", name=name, kinds=kinds, got=values)
        require(len(values) == count, "{name} has {got} rows, not {count}", name=name, got=len(values), count=count)
    rows = rows_of(params)
    for row in rows:
        _check_draw(row, limits)
        _check_penalties(row, limits)
        fine = row.seed is None or 0 <= row.seed < 2**32
        require(fine, "seed {seed} is not unsigned 32-bit", seed=row.seed)
        _check_logprobs(row, limits)
    return rows


def check_neutral(rows: Iterable[Row]) -> None:
    for row in rows:
        require(row.neutral, "an idle slot has {row}", row=row)


def _check_draw(row: Row, limits: Limits) -> None:
    require(row.temperature >= 0 and math.isfinite(row.temperature), "temperature {got}", got=row.temperature)
    if row.greedy:
        fine = row.top_k == 1 and row.top_p in (0, 1)
        require(fine, "a greedy row with top_k {k} and top_p {p}", k=row.top_k, p=row.top_p)
    require(0 < row.top_p <= 1 or row.greedy, "top_p {got}", got=row.top_p)
    most = limits.vocab_size if limits.top_k is None else min(limits.top_k, limits.vocab_size)
    require(1 <= row.top_k <= most, "top_k {got} of a device that samples with 1 to {most}", got=row.top_k, most=most)


def _check_penalties(row: Row, limits: Limits) -> None:
    require(limits.penalties or not row.penalised, "penalties that the device does not have: {row}", row=row)
    fine = abs(row.presence_penalty) <= 2 and abs(row.frequency_penalty) <= 2 and 0 < row.repetition_penalty < math.inf
    require(fine, "penalties out of range: {row}", row=row)


def _check_logprobs(row: Row, limits: Limits) -> None:
    if not row.enable_log_probs:
        require(row.num_logprobs == 0, "{got} logprobs of a row that has none", got=row.num_logprobs)
        return
    most = -1 if limits.logprobs is None else limits.logprobs
    fine = 0 <= row.num_logprobs <= most
    require(fine, "{got} logprobs of a device that gives at most {most}", got=row.num_logprobs, most=limits.logprobs)
