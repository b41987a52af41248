"""Steps that were submitted and not read yet (design decision D6).

A step is read once, by whichever thread asks first, after all that were submitted before it. Two locks: one
is held while a thread waits for the device, the other only while what was read is applied, so that a thread
that submits the next step never waits for the device.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, RLock
from time import perf_counter
from typing import TYPE_CHECKING

from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tt.scheduler.record import StepRecord
    from vllm_tt.worker.forward import Handle
    from vllm_tt.worker.outputs import Output

__all__ = ["PendingStep", "StepOutput", "StepQueue"]


class PendingStep:
    """A decode on the device; its result is there once it was read and applied."""

    def __init__(
        self, handle: Handle, apply: Callable[[Output], ModelRunnerOutput], record: StepRecord | None = None
    ) -> None:
        """``apply`` brings what was read into the rows, and reports it."""
        self.handle = handle
        self.record = record
        self.apply = apply
        self.result: ModelRunnerOutput | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None


class StepQueue:
    """The submitted steps, oldest first."""

    def __init__(self, read: Callable[[Handle], Output]) -> None:
        self._read = read
        self._steps: deque[PendingStep] = deque()
        self._reading = Lock()
        self.applying = RLock()
        """Held by whoever changes or reads the rows."""

    def __len__(self) -> int:
        return len(self._steps)

    def submit(self, step: PendingStep) -> None:
        self._steps.append(step)

    def drain(self) -> None:
        """Read every step that was submitted; what went wrong in one is raised."""
        for step in list(self._steps):
            self.result_of(step)

    def result_of(self, step: PendingStep) -> ModelRunnerOutput:
        """Read ``step``, and those before it; what went wrong in it is raised."""
        if not step.done:
            self._read_until(step)
        if step.error is not None:
            raise step.error
        assert step.result is not None
        return step.result

    def _read_until(self, last: PendingStep) -> None:
        with self._reading:
            while not last.done:
                self._finish(self._steps[0])
                self._steps.popleft()

    def _finish(self, step: PendingStep) -> None:
        began = perf_counter()
        try:
            output = self._read(step.handle)
            if step.record is not None:
                step.record.waited = perf_counter() - began
            with self.applying:
                step.result = step.apply(output)
            if step.record is not None:
                step.record.ended = perf_counter()
        except Exception as error:  # noqa: BLE001 - raised to whoever asks for the step
            step.error = error


class StepOutput(AsyncModelRunnerOutput):
    """What vLLM gets for a step that is still on the device."""

    def __init__(self, queue: StepQueue, step: PendingStep) -> None:
        self._queue = queue
        self._step = step

    def get_output(self) -> ModelRunnerOutput:
        return self._queue.result_of(self._step)

    def get_kv_connector_output(self) -> None:
        """Abstract since vLLM 0.33: there is no connector."""
        return
