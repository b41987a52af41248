"""What must hold for adapters that sample on the device: the likeliest tokens, what is loaded again, row logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.conformance.check_row import Check
from vllm_tt.conformance.device_run import DeviceRun, drawing, widest_top_k
from vllm_tt.conformance.scores import drawn_outside, not_the_likeliest
from vllm_tt.conformance.workloads import several

if TYPE_CHECKING:
    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.cases import Case

__all__ = ["DEVICE_CHECKS"]


def _takes_the_likeliest(bench: Bench, case: Case) -> str | None:
    others = range(1, len(case.rows), 2) if widest_top_k(bench) > 1 else ()
    for params in ({}, {row: drawing(bench) for row in others}):
        run = DeviceRun(bench, case, params)
        run.prefill()
        for step in range(case.steps):
            run.decode(goes_on=step > 0)
        beside = " beside rows that draw" if params else ""
        if fault := _unlikely(bench, run, {row: beside for row in range(len(run.rows)) if row not in params}):
            return fault
        for row in params:
            for token, logits in zip(run.tokens[row], run.logits(row), strict=True):
                if fault := drawn_outside(token, logits, widest_top_k(bench), bench.tolerance):
                    return f"slot {run.rows[row].slot}: {fault}"
    return None


def _loads_what_it_is_told(bench: Bench, case: Case) -> str | None:
    """Every other step goes on; in the third the host has other tokens, and one row fewer."""
    run = DeviceRun(bench, case)
    run.prefill()
    idle: list[int] = []
    for step in range(case.steps):
        if step == 2:
            for row in run.live:
                run.force(row, (run.tokens[row][-1] + 1) % bench.rig.sizes.vocab_size)
            if len(run.live) > 1:
                idle.append(run.live.pop(0))
        watch = bench.watch()
        run.decode(goes_on=step % 2 == 1)
        pages = {page for row in run.live for page in run.rows[row].pages}
        if strange := watch.changed() - pages - {0}:
            what = f"slot {run.rows[idle[0]].slot} is idle; " if idle else ""
            return (
                f"{what}decode step {step + 1} changed pages {sorted(strange)}, the decoding rows' are {sorted(pages)}"
            )
    how = " (odd steps load what the host sends, even ones go on)"
    return _lost(bench, run) or _unlikely(bench, run, dict.fromkeys(range(len(run.rows)), how))


def _gives_logits_of_rows(bench: Bench, case: Case) -> str | None:
    run = DeviceRun(bench, case)
    hosts = [row for row in reversed(range(len(run.rows))) if row != 1]
    slots = [run.rows[row].slot for row in hosts]
    found = [run.prefill(logits_rows=hosts).logits]
    for _ in range(case.steps):
        for place, row in enumerate(hosts):
            run.force(row, int(found[-1][place].argmax()))
        found.append(run.decode(run.ask(logits_rows=slots)).logits)
    for place, row in enumerate(hosts):
        for step, (given, expected) in enumerate(zip(found, run.logits(row), strict=True)):
            what = f"logits of slot {run.rows[row].slot} {_after(step)}, asked for and from a call without sampling"
            if fault := bench.compare(what, given[place], expected):
                return fault
    beside = " beside rows that the host samples"
    return _unlikely(bench, run, {row: beside for row in range(len(run.rows)) if row not in hosts})


def _follows_unread_steps(bench: Bench, case: Case) -> str | None:
    """Each decode but the first is submitted before the one before it is read."""
    run = DeviceRun(bench, case)
    run.prefill()
    for step in range(case.steps):
        run.submit(goes_on=step > 0)
        run.read_until(unread=1)
    run.read_until(unread=0)
    return _lost(bench, run) or _unlikely(bench, run, dict.fromkeys(range(len(run.rows)), " with two steps in flight"))


def _unlikely(bench: Bench, run: DeviceRun, rows: dict[int, str]) -> str | None:
    """The first token of ``rows`` that is not the likeliest; each has what to say about its circumstances."""
    for row, circumstance in rows.items():
        for step, (token, logits) in enumerate(zip(run.tokens[row], run.logits(row), strict=True)):
            if fault := not_the_likeliest(token, logits, bench.tolerance):
                return f"slot {run.rows[row].slot} {_after(step)}{circumstance}: {fault}"
    return None


def _lost(bench: Bench, run: DeviceRun) -> str | None:
    """Whether what the steps wrote to the rows' pages is there."""
    for row, (found, expected) in run.next_logits().items():
        what = f"slot {run.rows[row].slot} in a decode without sampling after {len(run.tokens[row]) - 1} sampled ones"
        if fault := bench.compare(f"{what}, and alone", found, expected):
            return fault
    return None


def _after(step: int) -> str:
    return f"after decode step {step}" if step else "after the prefill"


DEVICE_CHECKS: tuple[Check, ...] = (
    Check(
        name="async-overlap",
        what="two decodes in flight give the tokens of one at a time",
        cases=several(3, 4),
        run=_follows_unread_steps,
        declared=("supports_async_decode", "supports_sample_on_device"),
    ),
    Check(
        name="device-sampling",
        what="rows that do not draw take the likeliest token, also beside rows that do",
        cases=several(3, 3),
        run=_takes_the_likeliest,
        declared=("supports_sample_on_device",),
    ),
    Check(
        name="reloads",
        what="what the host sends is loaded when it is told to be, and only then",
        cases=several(3, 4),
        run=_loads_what_it_is_told,
        declared=("supports_sample_on_device",),
    ),
    Check(
        name="row-logits",
        what="rows that the host samples get their logits, the others their tokens",
        cases=several(3, 2),
        run=_gives_logits_of_rows,
        declared=("supports_sample_on_device", "supports_row_logits"),
    ),
)
