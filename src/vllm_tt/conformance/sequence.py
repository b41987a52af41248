"""The rows of one check, in order: load, warm up, look at what was compiled, compare or try every call, then lanes."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from vllm_tt.conformance.bench import Bench
from vllm_tt.conformance.cases import smallest
from vllm_tt.conformance.checks import CHECKS
from vllm_tt.conformance.compare import TOLERANCES
from vllm_tt.conformance.coverage import emitted, programs
from vllm_tt.conformance.faults import cause_text, described, source_line
from vllm_tt.conformance.lane_checks import LANES_APART, lanes_to_try
from vllm_tt.conformance.report import Row
from vllm_tt.conformance.tries import Tries
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vllm_tt.conformance.cases import Case
    from vllm_tt.conformance.check_row import Check
    from vllm_tt.conformance.loading import Subject
    from vllm_tt.conformance.memory import DRAM
    from vllm_tt.conformance.operations import Operations
    from vllm_tt.conformance.request import Request
    from vllm_tt.conformance.rig import Rig

__all__ = ["NotWarmedUp", "Run", "ValuesAreZero", "run_check"]


class ValuesAreZero(ConfigError):
    """The adapter computes with ttnn operations, and on the emulated mesh values are zero: there is nothing to
    compare. Add --dry-run to check every call's shapes and arguments, or run on devices.
    """


class NotWarmedUp(TTError):
    """{step} compiles what warm-up has not (programs: {programs})."""


class Run:
    """One subject on one open mesh."""

    def __init__(self, request: Request, subject: Subject, device: Any, watched: Operations, dram: DRAM) -> None:
        self._request = request
        self._subject = subject
        self._device = device
        self._watched = watched
        self._dram = dram
        self._adapter: Any = None
        self._rig: Rig | None = None

    def rows(self) -> Iterator[Row | str]:
        """Each row when it is done, and before it the name of what is being done."""
        stages: list[tuple[str, Callable[[], str]]] = [
            ("load", self._load),
            ("kv-cache", self._allocate),
            ("warm-up", self._warm_up),
        ]
        # What is compiled from here on was left out by warm-up: this comes before other calls.
        stages.append(("warm-up-covers", self._covers))
        stages += self._calls() if self._request.dry_run else []
        for name, stage in stages:
            if name == "warm-up-covers" and self._values_are_zero:
                raise ValuesAreZero
            yield name
            row = self._stage(name, stage)
            yield row
            if row.status == "fail" and not row.case:
                return
        if not self._request.dry_run:
            yield from self._compared()
        if self._subject.capabilities.supports_lanes or not self._request.dry_run:
            yield LANES_APART.name
            yield self._in_lanes()
        if self._watched.calls:
            yield Row(name="memory", status="pass", detail=self._dram.summary())

    def _stage(self, name: str, stage: Callable[[], str]) -> Row:
        before = sum(self._watched.calls.values())
        try:
            detail = stage()
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises is the finding
            return self._failed(name, error)
        count = sum(self._watched.calls.values()) - before
        return Row(name=name, status="pass", detail=detail + (f"; {count} operations" if count else ""))

    def _failed(self, name: str, error: Exception) -> Row:
        if isinstance(error, NotWarmedUp):
            return Row(name=name, status="fail", detail=str(error).rstrip("."), case=str(error.facts["step"]))
        call = self._watched.failure(error)
        place = source_line(error, self._subject.folder)
        if call is None:
            return Row(name=name, status="fail", detail=described(error, self._subject.folder))
        return Row(name=name, status="fail", detail=f"{call}: {cause_text(error)}", place=place)

    @property
    def _values_are_zero(self) -> bool:
        return self._request.emulate and not self._request.dry_run and self._watched.computed > 0

    @property
    def _ready(self) -> Rig:
        assert self._rig is not None
        return self._rig

    def _load(self) -> str:
        self._adapter = self._subject.load(self._device)
        self._dram.note("weights")
        return f"{type(self._adapter).__name__} with {self._subject.sizes.slots} slots"

    def _allocate(self) -> str:
        self._rig = self._subject.rig(self._adapter)
        self._dram.note("KV cache")
        sizes, groups = self._rig.sizes, len(self._rig.pool.windows)
        several = f" in {groups} groups" if groups > 1 else ""
        return f"{sizes.pages} pages of {sizes.page_size} tokens, {sizes.layers} layers{several}"

    def _warm_up(self) -> str:
        for trace in (False, True):
            self._ready.warm_up(trace=trace)
        self._dram.note("warm-up")
        self._compiled = programs(self._device)
        return f"{self._compiled} programs" if self._compiled else "nothing is compiled"

    def _bench(self, rig: Rig) -> Bench:
        default = TOLERANCES.get(str(self._subject.dtype).removeprefix("torch."), 0.1)
        return Bench(rig, self._request.tolerance or default)

    def _compared(self) -> Iterator[Row | str]:
        bench = self._bench(self._ready)
        for check in CHECKS:
            yield check.name
            yield run_check(check, bench, self._subject.folder)

    def _in_lanes(self) -> Row:
        """With the adapter loaded once more, in lanes; the one without goes first, to make room."""
        chips = self._subject.chips
        lanes = lanes_to_try(chips)
        if missing := LANES_APART.undeclared(self._subject.capabilities):
            return Row(name=LANES_APART.name, status="skip", detail=f"{missing} is not declared")
        if lanes == 1:
            detail = (
                f"a mesh of {chips} chip{'' if chips == 1 else 's'} does not divide into lanes; --mesh names another"
            )
            return Row(name=LANES_APART.name, status="skip", detail=detail)
        self._adapter = self._rig = None
        gc.collect()
        subject = self._subject.in_lanes(lanes)
        try:
            rig = subject.rig(subject.load(self._device))
            rig.warm_up(trace=False)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises is the finding
            return self._failed(LANES_APART.name, error)
        if self._request.dry_run:
            return self._stage(LANES_APART.name, lambda: Tries(rig).lanes())
        return run_check(LANES_APART, self._bench(rig), self._subject.folder)

    def _calls(self) -> list[tuple[str, Callable[[], str]]]:
        declared = self._subject.capabilities
        stages: list[tuple[str, Callable[[], str]]] = [
            ("prefill", lambda: Tries(self._ready).prefill()),
            ("decode", lambda: Tries(self._ready).decode()),
        ]
        if declared.supports_async_decode:
            stages.append(("async-split", lambda: Tries(self._ready).decode(split=True)))
        if declared.supports_sample_on_device:
            stages.append(("device-sampling", lambda: Tries(self._ready).sample()))
        return stages

    def _covers(self) -> str:
        if not self._watched.computed:
            return "the adapter computes on the host: nothing is compiled"
        count = 0
        for step in emitted(self._ready):
            before = programs(self._device)
            step.run(self._ready)
            if (new := programs(self._device) - before) > 0:
                raise NotWarmedUp(step=step, programs=new)
            count += 1
        return f"{count} kinds of step compile nothing new"


def run_check(check: Check, bench: Bench, folder: Path) -> Row:
    """The row of one check; ``folder`` is the bundle's, whose lines are named in faults."""
    if why := check.skipped(bench.rig.capabilities, bench.rig.sizes):
        return Row(name=check.name, status="skip", detail=why)

    def fault_of(case: Case) -> str | None:
        try:
            return check.run(bench, case)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises is the finding
            return described(error, folder)

    bench.worst = 0.0
    for case in check.cases(bench.rig.sizes):
        if (fault := fault_of(case)) is not None:
            least, seen = smallest(case, fault, fault_of)
            return Row(name=check.name, status="fail", detail=seen, case=str(least))
    apart = f" (largest difference {bench.worst:.2g}, limit {bench.tolerance:g})" if bench.worst else ""
    return Row(name=check.name, status="pass", detail=check.what + apart)
