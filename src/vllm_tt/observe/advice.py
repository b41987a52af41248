"""A summary in words: a line for each figure, with what to change where the figure warrants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_tt.observe.summary import KV_FULL, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_tt.observe.summary import PhaseFigures, Summary

__all__ = ["Remark", "remarks"]

WORTH_CHANGING = 0.05
"""Shares of time below this are told and not advised upon."""
HOST_TIME_WORTH_CHANGING = 0.3
UNEVEN_WORTH_CHANGING = 0.2

_DRAIN_ADVICE = {
    "trace_mode none": "leave tt.trace_mode at all or decode_only: without traces no decode overlaps",
    "logprobs": "ask for logprobs only where they are read: each such step waits for the one before",
    "sampling on the host": "see the reasons of host sampling: such a step waits for the one before",
    "a changed batch": "short answers change the batch often; an adapter with decode_input_update_contract = 1 "
    "takes new pages without a wait (docs/async-decode.md)",
}
"""By reason; a prefill's drain is part of every prefill and nothing to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """One figure in words."""

    about: str
    text: str
    advice: str = ""
    """What to change, or nothing where the figure is fine."""


def remarks(summary: Summary) -> list[Remark]:
    """Everything the figures say, the costliest first among what an operator can change."""
    return [
        _span(summary),
        _phase("prefill", summary.prefill),
        _phase("decode", summary.decode),
        _stalls(summary),
        _host_sampling(summary),
        _drains(summary),
        _preemptions(summary),
        _device(summary),
        _load(summary),
        *_lanes(summary),
        *_damaged(summary),
    ]


def _span(summary: Summary) -> Remark:
    engines = f" of {summary.engines} engines" if summary.engines > 1 else ""
    text = f"{summary.steps:,} steps{engines} in {seconds(summary.span_s)}, {seconds(summary.ms / 1000)} of it in steps"
    return Remark(about="span", text=text)


def _phase(name: str, its: PhaseFigures) -> Remark:
    if not its.steps:
        return Remark(about=name, text="no steps")
    rate = share(its.tokens, its.ms / 1000)
    text = f"{its.steps:,} steps, {seconds(its.ms / 1000)}, mean {its.ms / its.steps:.1f} ms; "
    return Remark(about=name, text=text + f"{its.tokens:,} tokens, {rate:,.0f} a second of {name}")


def _stalls(summary: Summary) -> Remark:
    longest = summary.longest_stall
    if longest is None:
        return Remark(about="prefill stalls", text="none")
    text = (
        f"{percent(summary.stall_share)} of decode time was lost to {plural(summary.stalls, 'prefill step')}, longest "
        f"{longest.ms:.0f} ms by {names(longest.requests)} while {plural(longest.stalled, 'request')} waited"
    )
    advice = ""
    if summary.stall_share >= WORTH_CHANGING:
        advice = (
            "tt.decode_interleave_prefill_steps 1 for the shortest waits, tt.decode_interleave_decode_steps 2 and more "
            "to give decoding a larger share; a lower --max-num-batched-tokens makes each step shorter"
        )
    return Remark(about="prefill stalls", text=text, advice=advice)


def _host_sampling(summary: Summary) -> Remark:
    about = "host sampling"
    if not summary.host_steps:
        if summary.device_steps:
            return Remark(about=about, text="none, the device sampled every step")
        advice = "tt.sample_on_device_mode all, if the model declares supports_sample_on_device"
        return Remark(about=about, text="every step, as device sampling is off", advice=advice)
    part = share(summary.host_ms, summary.ms)
    split = f" ({summary.split_steps:,} of them in part)" if summary.split_steps else ""
    text = (
        f"{percent(part)} of the time was in {summary.host_steps:,} of {summary.steps:,} steps that the "
        f"host sampled{split}, "
        f"because of {counted(summary.host_reasons)}"
    )
    return Remark(about=about, text=text, advice=_host_advice(summary) if part >= WORTH_CHANGING else "")


def _host_advice(summary: Summary) -> str:
    reason = next(iter(summary.host_reasons))
    if reason == "always_compat_sampling":
        return "leave tt.always_compat_sampling out: it is for debugging"
    if reason.startswith("prefill with"):
        return "tt.sample_on_device_mode all, so that prefill steps are sampled there too"
    if reason == "intermediate prefill chunks":
        return "a higher --max-num-batched-tokens makes fewer chunks of long prompts, at the price of longer stalls"
    if reason == "custom logits processors":
        return "serve without --logits-processors and packages that install one, where they are not needed"
    if summary.split_steps:
        return f"{reason} takes the host for such rows: send such requests to a server of their own (docs/sampling.md)"
    return (
        f"{reason} takes the host: send such requests to a server of their own, or let the adapter declare "
        "supports_row_logits, so that only their rows are sampled there (docs/sampling.md)"
    )


def _drains(summary: Summary) -> Remark:
    if not summary.drains:
        return Remark(about="drains", text="none")
    text = f"{counted(summary.drains)}: steps that waited for the one before to be read"
    reason = next((one for one in summary.drains if one in _DRAIN_ADVICE), "")
    warranted = share(summary.drains.get(reason, 0), summary.decode.steps) >= WORTH_CHANGING
    return Remark(about="drains", text=text, advice=_DRAIN_ADVICE[reason] if warranted else "")


def _preemptions(summary: Summary) -> Remark:
    if not summary.preemptions:
        return Remark(about="preemptions", text="none")
    part = share(summary.recomputed_tokens, summary.prefill.tokens)
    text = (
        f"{plural(summary.preemptions, 'request')} lost slot and pages; {summary.recomputed_tokens:,} tokens were "
        f"computed again, {percent(part)} of all prefill"
    )
    advice = ""
    if part >= WORTH_CHANGING:
        advice = "more pages (--num-gpu-blocks-override) or fewer requests at once (a lower --max-num-seqs)"
    return Remark(about="preemptions", text=text, advice=advice)


def _device(summary: Summary) -> Remark:
    # Of all steps together: with asynchronous scheduling a step's wait may lie within the time of the one before.
    part = min(1.0, share(summary.prefill.wait_ms + summary.decode.wait_ms, summary.ms))
    text = (
        f"{percent(part)} of the steps' time was spent waiting for the model's output, {percent(1 - part)} on the host"
    )
    advice = ""
    if 1 - part >= HOST_TIME_WORTH_CHANGING:
        advice = (
            "unless it is on already, --async-scheduling hides the host's part, for models that declare "
            "supports_async_decode; adapters that "
            "compute on the host count as host (docs/performance.md)"
        )
    return Remark(about="device", text=text, advice=advice)


def _load(summary: Summary) -> Remark:
    text = (
        f"KV cache {percent(summary.kv_mean)} full on average, {percent(summary.kv_max)} at most; requests waited for "
        f"a slot during {percent(summary.waiting_share)} of the time"
    )
    advice = ""
    if summary.kv_max >= KV_FULL and summary.preemptions:
        advice = "pages are short: --num-gpu-blocks-override for more, or a lower --max-num-seqs"
    elif summary.waiting_share >= WORTH_CHANGING:
        advice = "a higher --max-num-seqs, if the model's decode batch has more rows"
    return Remark(about="load", text=text, advice=advice)


def _lanes(summary: Summary) -> Iterator[Remark]:
    if all(len(lanes) == 1 for lanes in summary.lane_rows) and len(summary.lane_rows) == 1:
        return
    rows = " | ".join(", ".join(f"{mean:.1f}" for mean in lanes) for lanes in summary.lane_rows)
    text = f"{rows} rows a decode step; uneven, with requests waiting, for {percent(summary.uneven)} of the time"
    advice = ""
    if summary.uneven >= UNEVEN_WORTH_CHANGING:
        advice = (
            "requests of very unlike lengths fill lanes unevenly: a higher --max-num-seqs gives each lane more slots"
        )
    yield Remark(about="lanes", text=text, advice=advice)


def _damaged(summary: Summary) -> Iterator[Remark]:
    if summary.damaged:
        text = f"left out as no steps: {plural(summary.damaged, 'line')}, the first at {summary.first_damaged}"
        yield Remark(about="damaged", text=text)


def names(requests: tuple[str, ...], shown: int = 1) -> str:
    """The first requests' names, and how many more there are."""
    if not requests:
        return "no named request"
    more = f" and {len(requests) - shown} more" if len(requests) > shown else ""
    return ("request " if len(requests) == 1 else "requests ") + ", ".join(requests[:shown]) + more


def counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(part: float) -> str:
    """A share as text: "42 %", and "0.4 %" where it is small."""
    value = part * 100
    return f"{value:.1f} %" if 0 < value < 1 else f"{value:.0f} %"


def seconds(value: float) -> str:
    minutes, rest = divmod(value, 60)
    return f"{minutes:,.0f} min {rest:.0f} s" if minutes else f"{value:.1f} s"
