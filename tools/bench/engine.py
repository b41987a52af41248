"""vLLM's engine in this process, on the no-op model: stepped by hand, every step timed."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tools.bench.checkpoint import LONGEST
from tools.bench.settings import Timing

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tools.bench.settings import Settings
    from tools.bench.workloads import Job

__all__ = ["Engine", "LogitsChanged", "NobodyWaited", "Timer"]


class LogitsChanged(TTError):
    """The sampler wrote into the adapter's logits: the steps after that were measured on others."""


class NobodyWaited(TTError):
    """The device computed for {device:.0f} ms in {passed:.0f} ms: results were used before they were there."""


class Engine:
    """An engine core and its client, as `vllm.LLM` has them."""

    def __init__(self, settings: Settings) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self._llm = LLMEngine.from_engine_args(
            EngineArgs(
                model=settings.model,
                skip_tokenizer_init=True,
                max_model_len=LONGEST,
                max_num_seqs=settings.rows // settings.lanes,
                enable_prefix_caching=False,
                async_scheduling=settings.asynchronous,
                additional_config={"tt": settings.tt_options()},
            )
        )
        self.core = self._llm.engine_core.engine_core
        self.core.step_fn = _Timed(self.core.step_fn)
        if settings.books == "off":
            _close_the_books(self.core.scheduler.ledger)
        self.page = self.core.vllm_config.cache_config.block_size
        self._names = itertools.count()
        self._logits_sum = self._sum_of_logits()

    @property
    def worker(self) -> Any:
        return self.core.model_executor.driver_worker.worker

    @property
    def model(self) -> Any:
        """The no-op adapter."""
        return self.worker.get_model()

    @property
    def busy(self) -> bool:
        return self.core.scheduler.has_requests() or bool(self.core.batch_queue)

    def add(self, job: Job) -> str:
        """Queue a request; its id."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        streamed = RequestOutputKind.DELTA
        params = SamplingParams(**job.params, ignore_eos=True, max_tokens=job.tokens, output_kind=streamed)
        name = f"r{next(self._names)}"
        self._llm.add_request(name, {"prompt_token_ids": job.prompt}, params)
        return name

    def step(self) -> list[str]:
        """One step of the engine's loop; the requests that got tokens."""
        return [output.request_id for output in self._llm.step()]

    def finish(self, names: Sequence[str] = ()) -> None:
        """Abort ``names`` and run until nothing is left."""
        self._llm.abort_request(list(names))
        while self.busy:
            self.step()

    def shutdown(self) -> None:
        self.core.shutdown()

    def counters(self) -> dict[str, dict[str, int]]:
        """What the worker counts: groups such as drains, each with a number by name; empty before it does."""
        count = getattr(self.worker, "counters", None)
        return {group: dict(found) for group, found in count().items()} if count else {}

    @contextmanager
    def device_step(self, milliseconds: float) -> Iterator[None]:
        """How long the device takes for a decode step, for a while."""
        device = self.model.device
        before, device.step_ns = device.step_ns, round(milliseconds * 1e6)
        try:
            yield
        finally:
            device.step_ns = before

    @contextmanager
    def timed(self) -> Iterator[Timer]:
        """Takes the time of the steps made within through the timer's `step`."""
        timer = Timer(self)
        yield timer
        timer.stop()
        if self._sum_of_logits() != self._logits_sum:
            raise LogitsChanged

    def _sum_of_logits(self) -> float:
        return float(self.model.logits.sum())


def _close_the_books(ledger: Any) -> None:
    """Let steps go uncounted."""
    ledger.open = lambda output, *_: output
    ledger.close = ledger.tell = lambda *_: None


class _Timed:
    """A function that knows how long its last call took."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.last = 0

    def __call__(self) -> Any:
        began = time.perf_counter_ns()
        try:
            return self._function()
        finally:
            self.last = time.perf_counter_ns() - began


class Timer:
    """Steps of an engine with the time they take, from the first one on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._device = engine.model.device
        self._loop: list[int] = []
        self._core: list[int] = []
        self._counters = engine.counters()
        self._device_before = self._device.busy_ns
        self._cpu_before = self._host_cpu()
        self._last = time.perf_counter_ns()
        self.timing: Timing | None = None

    def step(self) -> list[str]:
        """One step, timed from the end of the one before."""
        told = self._engine.step()
        now = time.perf_counter_ns()
        self._loop.append(now - self._last)
        self._core.append(self._engine.core.step_fn.last)
        self._last = now
        return told

    def stop(self) -> None:
        cpu = self._host_cpu() - self._cpu_before
        device = self._device.busy_ns - self._device_before
        passed, in_flight = sum(self._loop), 2 * self._device.step_ns
        if device > passed + in_flight:
            raise NobodyWaited(device=device / 1e6, passed=passed / 1e6)
        counters = risen(self._counters, self._engine.counters())
        self.timing = Timing(loop=self._loop, core=self._core, cpu=cpu, device=device, counters=counters)

    def _host_cpu(self) -> int:
        return time.process_time_ns() - self._device.spun_ns


def risen(before: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """By how much each counter rose; those that did not are left out."""
    rises: dict[str, dict[str, int]] = {}
    for group, found in now.items():
        for name, count in found.items():
            if rise := count - before.get(group, {}).get(name, 0):
                rises.setdefault(group, {})[name] = rise
    return rises
