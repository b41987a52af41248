"""Small simulated servers, and runs of them."""

import pytest
from tools.simulate.device import DeviceModel
from tools.simulate.workload import NS_PER_S, Job


@pytest.fixture
def job():
    """A function that makes a job; its arrival is in seconds."""

    def make(name, arrival, prompt, output, **more):
        return Job(name=name, arrival_ns=round(arrival * NS_PER_S), prompt_tokens=prompt, output_tokens=output, **more)

    return make


@pytest.fixture
def run():
    """A function that serves jobs; keywords are settings of the server."""

    def serve(jobs, device=None, **settings):
        from tools.simulate.run import simulate
        from tools.simulate.server import Server

        server = Server(**{"max_num_seqs": 8, "max_num_batched_tokens": 256, "max_model_len": 1024} | settings)
        return simulate(jobs, server, device or DeviceModel())

    return serve
