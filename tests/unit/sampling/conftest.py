import pytest
import torch
from probe_config import probe_config
from vllm.sampling_params import SamplingParams

from vllm_tt.batch.requests import RequestState
from vllm_tt.sampling.host import HostSampler

VOCAB = 1000


def make_state(req_id, params=None, prompt=(1, 2, 3), output=(), slot=0):
    params = params or SamplingParams(temperature=0)
    generator = torch.Generator().manual_seed(params.seed) if params.seed is not None else None
    return RequestState(
        req_id=req_id,
        prompt_token_ids=list(prompt),
        sampling_params=params,
        generator=generator,
        output_token_ids=list(output),
        slot=slot,
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads that wait for each other stall where other work runs beside the tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def state():
    return make_state


@pytest.fixture
def make_sampler(tmp_path):
    def make(vocab_size=VOCAB, rows=64, **options):
        return HostSampler(probe_config(tmp_path, vocab_size=vocab_size, rows=rows, **options))

    return make
