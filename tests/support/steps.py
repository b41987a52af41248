"""Steps for the worker, made of vLLM's own types."""

from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from vllm_tt.scheduler.plan import Phase, StepPlan, TTSchedulerOutput


def new_request(req_id, prompt, pages, computed=0, params=None, **more):
    """A request that vLLM schedules for the first time, greedy unless ``params`` says otherwise."""
    return NewRequestData(
        req_id=req_id,
        prompt_token_ids=prompt,
        mm_features=more.pop("mm_features", []),
        sampling_params=params or SamplingParams(temperature=0),
        pooling_params=None,
        block_ids=(pages,),
        num_computed_tokens=computed,
        lora_request=None,
        **more,
    )


def step(phase, rows=(), *, new=(), cached=(), resumed=None, released=(), finished=()):
    """``rows``: (request id, slot, start, end, intermediate); ``cached``: (request id, new pages or
    None); ``resumed``: request id -> all its tokens.
    """
    resumed = resumed or {}
    base = SchedulerOutput.make_empty()
    base.scheduled_new_reqs = list(new)
    base.scheduled_cached_reqs = CachedRequestData(
        req_ids=[req_id for req_id, _ in cached],
        resumed_req_ids=set(resumed),
        new_token_ids=[],
        all_token_ids=resumed,
        new_block_ids=[None if pages is None else (pages,) for _, pages in cached],
        num_computed_tokens=[0] * len(cached),
        num_output_tokens=[0] * len(cached),
    )
    base.num_scheduled_tokens = {row[0]: row[3] - row[2] for row in rows}
    base.total_num_scheduled_tokens = sum(base.num_scheduled_tokens.values())
    base.finished_req_ids = set(finished)
    return TTSchedulerOutput.of(base, StepPlan.build(phase, list(rows), tuple(released)))


def prefill(*rows, **more):
    return step(Phase.PREFILL, rows, **more)


def decode(*rows, **more):
    return step(Phase.DECODE, rows, **more)


def empty(**more):
    return step(Phase.EMPTY, **more)
