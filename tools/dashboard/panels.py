"""What the dashboard shows: rows of panels, each with its queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ROWS", "Panel"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One graph over time."""

    title: str
    about: str
    """What it says, and what to do where it looks bad."""
    queries: Mapping[str, str]
    """PromQL by legend; ``{{label}}`` in a legend is the label's value."""
    unit: str
    """Grafana's name of it."""
    stacked: bool = False


def of(metric: str) -> str:
    """The series that the dashboard's variables choose."""
    return f'{metric}{{model_name=~"$model_name",engine=~"$engine"}}'


def rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({of(metric)}[$__rate_interval]))"


def quantiles(histogram: str) -> dict[str, str]:
    buckets = rate(f"{histogram}_bucket", "le")
    return {f"p{round(100 * share)}": f"histogram_quantile({share}, {buckets})" for share in (0.5, 0.95, 0.99)}


def each(metric: str) -> str:
    """A lane's gauge."""
    return f"sum by (engine, lane) ({of(metric)})"


STEPS_BY_PHASE = (
    f'sum by (phase) (label_replace(rate({of("vllm_tt:steps_total")}[$__rate_interval]), "phase", "$1", "kind", '
    '"(prefill|decode) .*"))'
)
LANE = "engine {{engine}} lane {{lane}}"

FELT = (
    Panel(
        title="Time to first token",
        about="From a request's arrival to its first token: waiting for a slot, then prefill.",
        queries=quantiles("vllm:time_to_first_token_seconds"),
        unit="s",
    ),
    Panel(
        title="Time between tokens",
        about="A p99 far above p50 is a prefill that decodes had to wait for: see Decode stalls.",
        queries=quantiles("vllm:inter_token_latency_seconds"),
        unit="s",
    ),
    Panel(
        title="Request latency",
        about="From arrival to the last token, and the part of it in the queue.",
        queries={
            **quantiles("vllm:e2e_request_latency_seconds"),
            "p95 in the queue": quantiles("vllm:request_queue_time_seconds")["p95"],
        },
        unit="s",
    ),
    Panel(
        title="Tokens a second",
        about="Tokens of prompts as they are computed, and generated tokens.",
        queries={
            "generated": rate("vllm:generation_tokens_total"),
            "prompts": rate("vllm:prompt_tokens_total"),
        },
        unit="short",
    ),
    Panel(
        title="Requests",
        about="Waiting while running is below the slots: there are no free pages (see Memory).",
        queries={
            "running": f"sum ({of('vllm:num_requests_running')})",
            "waiting": f"sum ({of('vllm:num_requests_waiting')})",
            "slots": f"sum ({of('vllm_tt:lane_slots')})",
        },
        unit="short",
    ),
    Panel(
        title="Finished requests a second",
        about="By what ended them; abort is a client that went away.",
        queries={"{{finished_reason}}": rate("vllm:request_success_total", "finished_reason")},
        unit="reqps",
    ),
)

TIME = (
    Panel(
        title="Time by phase",
        about="Share of the time in which steps of each phase ran; the rest is idle. Several engines add up.",
        queries={"{{phase}}": rate("vllm_tt:step_seconds_total", "phase")},
        unit="percentunit",
        stacked=True,
    ),
    Panel(
        title="Device and host",
        about="The same time by who was waited for. Much host time with decodes: see Slow paths.",
        queries={
            "waiting for the device": rate("vllm_tt:device_wait_seconds_total"),
            # A wait may begin before the step that it is counted with.
            "host": (
                f"clamp_min({rate('vllm_tt:step_seconds_total')} - {rate('vllm_tt:device_wait_seconds_total')}, 0)"
            ),
        },
        unit="percentunit",
        stacked=True,
    ),
    Panel(
        title="Mean time of a step",
        about="Prefill steps are as long as --max-num-batched-tokens lets them be.",
        queries={"{{phase}}": f"{rate('vllm_tt:step_seconds_total', 'phase')} / {STEPS_BY_PHASE}"},
        unit="s",
    ),
    Panel(
        title="Time lost to decode stalls",
        about="Share of the time in which a prefill step ran while requests were waiting to decode.",
        queries={"stalled": rate("vllm_tt:decode_stall_seconds_total")},
        unit="percentunit",
    ),
    Panel(
        title="Mean decode stall",
        about="How long such a prefill step took, and how many requests waited for it. Lower --max-num-batched-tokens.",
        queries={
            "seconds": f"{rate('vllm_tt:decode_stall_seconds_total')} / {rate('vllm_tt:decode_stalls_total')}",
            "requests": (
                f"{rate('vllm_tt:stalled_request_seconds_total')} / {rate('vllm_tt:decode_stall_seconds_total')}"
            ),
        },
        unit="short",
    ),
    Panel(
        title="Steps a second",
        about="By phase and by where their tokens were sampled.",
        queries={"{{kind}}": rate("vllm_tt:steps_total", "kind")},
        unit="ops",
        stacked=True,
    ),
    Panel(
        title="Tokens computed a second",
        about="By phase; prefill counts recomputed tokens too, and no cached ones.",
        queries={"{{phase}}": rate("vllm_tt:tokens_total", "phase")},
        unit="short",
    ),
    Panel(
        title="Switches and chunked prompts a second",
        about="Phase switches are cheap here and may be expensive on a device; chunked prompts took several steps.",
        queries={
            "phase switches": rate("vllm_tt:phase_switches_total"),
            "chunked prompts": rate("vllm_tt:chunked_prompts_total"),
        },
        unit="ops",
    ),
)

SLOW = (
    Panel(
        title="Steps with host sampling",
        about="Share of steps that the device could not sample alone, by reason.",
        queries={
            "{{reason}}": (f"{rate('vllm_tt:host_sampling_total', 'reason')} / scalar({rate('vllm_tt:steps_total')})")
        },
        unit="percentunit",
    ),
    Panel(
        title="Decode steps that waited for the one before",
        about="Drains a second, by reason: such a decode does not overlap with the step before.",
        queries={"{{reason}}": rate("vllm_tt:drains_total", "reason")},
        unit="ops",
        stacked=True,
    ),
)

MEMORY = (
    Panel(
        title="KV cache by lane",
        about="Share of a lane's pages that requests hold; preemptions begin at 100 %.",
        queries={LANE: each("vllm_tt:lane_kv_cache_usage"), "of all": f"avg ({of('vllm:kv_cache_usage_perc')})"},
        unit="percentunit",
    ),
    Panel(
        title="Preemptions a second",
        about="Requests that lost slot and pages to others. Fewer requests at once (--max-num-seqs) or a larger cache.",
        queries={"preemptions": rate("vllm_tt:preemptions_total")},
        unit="ops",
    ),
    Panel(
        title="Prefill computed twice",
        about="Share of prefill tokens that had been computed before their request was preempted.",
        queries={
            "recomputed": (
                f'{rate("vllm_tt:recomputed_tokens_total")} / sum (rate(vllm_tt:tokens_total{{phase="prefill",'
                'model_name=~"$model_name",engine=~"$engine"}[$__rate_interval]))'
            )
        },
        unit="percentunit",
    ),
    Panel(
        title="Prefix cache hits",
        about="Share of the prompt tokens looked up that were cached.",
        queries={"hits": f"{rate('vllm:prefix_cache_hits_total')} / {rate('vllm:prefix_cache_queries_total')}"},
        unit="percentunit",
    ),
)

LANES = (
    Panel(
        title="Running by lane",
        about="Requests that hold a slot.",
        queries={LANE: each("vllm_tt:lane_running")},
        unit="short",
    ),
    Panel(
        title="Waiting by lane",
        about="Requests bound to a lane that has no slot or no pages for them.",
        queries={LANE: each("vllm_tt:lane_waiting")},
        unit="short",
    ),
    Panel(
        title="Imbalance and free slots",
        about="Between the fullest and the emptiest lane of an engine, in requests; slots that nobody holds.",
        queries={
            "imbalance, engine {{engine}}": (
                f"max by (engine) ({of('vllm_tt:lane_running')}) - min by (engine) ({of('vllm_tt:lane_running')})"
            ),
            "free, engine {{engine}}": (
                f"sum by (engine) ({of('vllm_tt:lane_slots')}) - sum by (engine) ({of('vllm_tt:lane_running')})"
            ),
        },
        unit="short",
    ),
)

ROWS: Mapping[str, tuple[Panel, ...]] = {
    "What users feel": FELT,
    "Where the time goes": TIME,
    "Slow paths": SLOW,
    "Memory": MEMORY,
    "Lanes": LANES,
}
