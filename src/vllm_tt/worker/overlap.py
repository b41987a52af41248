"""Whether a decode may be submitted while the one before is still on the device, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_tt.sampling.policy import Where
    from vllm_tt.worker.reloads import Reload

__all__ = ["Drain", "Overlap", "overlap"]


class Drain(Enum):
    """Why the steps before must be read first."""

    PREFILL = "prefill"
    HOST_SAMPLING = "sampling on the host"
    RELOAD = "a changed batch"
    LOGPROBS = "logprobs"
    NO_TRACE = "trace_mode none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """The answer for one decode."""

    drain: Drain | None
    """Why earlier steps are read before this one is submitted; None lets it follow them on the device."""
    ahead: bool
    """This one's output may stay on the device until it is asked for."""


def overlap(where: Where, reload: Reload, *, logprobs: bool, traced: bool) -> Overlap:
    """For a decode that is sampled ``where`` and loads what ``reload`` says; ``logprobs``: a row asks for some."""
    if not where.device or where.host_rows:
        return Overlap(drain=Drain.HOST_SAMPLING, ahead=False)
    if not traced:
        return Overlap(drain=Drain.NO_TRACE, ahead=False)
    if logprobs:
        return Overlap(drain=Drain.LOGPROBS, ahead=False)
    return Overlap(drain=Drain.RELOAD if reload.inputs else None, ahead=True)
