"""When a decode step goes before pending prefill work, so that decodes never wait for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.config import TTConfig
from vllm_tt.scheduler.plan import Phase

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["DecodeInterleave"]


class DecodeInterleave:
    """While prefill is pending and a request is decoding: at most ``prefill_steps`` prefill steps in
    a row, then ``decode_steps`` decode steps.

    The policy only ever puts a decode step in place of a prefill step, and never in place of the
    first of a run. Disabled, prefill always goes first.
    """

    @classmethod
    def of(cls, vllm_config: VllmConfig) -> DecodeInterleave:
        """As the operator configured it."""
        config = TTConfig.from_additional_config(vllm_config.additional_config)
        return cls(
            enabled=config.decode_interleave_enabled,
            prefill_steps=config.decode_interleave_prefill_steps,
            decode_steps=config.decode_interleave_decode_steps,
        )

    def __init__(self, *, enabled: bool, prefill_steps: int, decode_steps: int) -> None:
        self._enabled = enabled
        self._prefill_steps = prefill_steps
        self._decode_steps = decode_steps
        self._prefills = 0
        self._decodes = 0

    def choose(self, *, prefill_pending: bool, decode_running: bool) -> Phase:
        """The phase to try now; what then ran is told to `ran`."""
        if not prefill_pending:
            self._restart()
            return Phase.DECODE if decode_running else Phase.EMPTY
        if self._enabled and decode_running and self._prefills >= self._prefill_steps:
            return Phase.DECODE
        return Phase.PREFILL

    def ran(self, phase: Phase) -> None:
        """Count a step that was scheduled."""
        if phase is Phase.PREFILL:
            self._prefills += 1
            self._decodes = 0
        elif phase is Phase.DECODE:
            self._decodes += 1
            if self._decodes >= self._decode_steps:
                self._restart()

    def _restart(self) -> None:
        self._prefills = self._decodes = 0
