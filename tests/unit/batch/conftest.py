"""Steps for the worker's batch, made of vLLM's own types."""

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from vllm_tt.scheduler.plan import Phase, StepPlan, TTSchedulerOutput


def new_request(req_id, prompt, pages, computed=0, params=None, **more):
    return NewRequestData(
        req_id=req_id,
        prompt_token_ids=prompt,
        mm_features=[],
        sampling_params=params or SamplingParams(),
        pooling_params=None,
        block_ids=(pages,),
        num_computed_tokens=computed,
        lora_request=None,
        **more,
    )


def step(phase, rows=(), *, new=(), cached=(), resumed=None, released=(), finished=()):
    """``cached``: (request id, new pages or None); ``resumed``: request id -> all its tokens."""
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
    base.finished_req_ids = set(finished)
    return TTSchedulerOutput.of(base, StepPlan.build(phase, list(rows), tuple(released)))


@pytest.fixture
def make():
    """The builders above, for tests of this folder."""

    class Make:
        new = staticmethod(new_request)
        prefill = staticmethod(lambda *a, **k: step(Phase.PREFILL, *a, **k))
        decode = staticmethod(lambda *a, **k: step(Phase.DECODE, *a, **k))
        empty = staticmethod(lambda **k: step(Phase.EMPTY, **k))

    return Make
