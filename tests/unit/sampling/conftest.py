import pytest
import torch
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.requests import RequestState


def make_state(req_id, params=None, prompt=(1, 2, 3), output=()):
    params = params or SamplingParams(temperature=0)
    generator = torch.Generator().manual_seed(params.seed) if params.seed is not None else None
    return RequestState(
        req_id=req_id,
        prompt_token_ids=list(prompt),
        sampling_params=params,
        generator=generator,
        output_token_ids=list(output),
    )


@pytest.fixture
def state():
    return make_state
