"""vLLM's engine core in this process, with the real scheduler and worker, checked after every step."""

import time
from contextlib import contextmanager

from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor


class Engine:
    """An engine that is stepped by hand; ``tokens`` holds what each request has generated, ``logprobs`` each step's."""

    def __init__(self, model, **args):
        config = EngineArgs(**{"model": str(model), "skip_tokenizer_init": True} | args).create_engine_config()
        self.core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.config = config
        self.tokens = {}
        self.logprobs = {}
        self.finished = {}
        self.plans = []
        self.core.scheduler.schedule = self._recording(self.core.scheduler.schedule)

    def _recording(self, schedule):
        def recorded(*args):
            output = schedule(*args)
            self.plans.append(output.plan)
            return output

        return recorded

    @property
    def phases(self):
        """The steps so far: P prefill, D decode, - empty."""
        return "".join({"prefill": "P", "decode": "D", "empty": "-"}[plan.phase.value] for plan in self.plans)

    @property
    def worker(self):
        return self.core.model_executor.driver_worker.worker

    def add(self, req_id, prompt, *, priority=0, **params):
        """Queue a request; greedy unless ``params`` says otherwise."""
        request = EngineCoreRequest(
            request_id=req_id,
            prompt_token_ids=list(prompt),
            mm_features=None,
            sampling_params=SamplingParams(**{"temperature": 0, "ignore_eos": True, "max_tokens": 16} | params),
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=priority,
        )
        self.add_request(request)

    def add_request(self, request):
        """Queue an `EngineCoreRequest` as it is."""
        self.tokens[request.request_id], self.logprobs[request.request_id] = [], []
        self.core.add_request(*self.core.preprocess_add_request(request))

    def abort(self, *req_ids):
        self.core.abort_requests(list(req_ids))

    @property
    def busy(self):
        return self.core.scheduler.has_requests() or bool(self.core.batch_queue)

    def step(self):
        """One step of the engine's loop; returns the ids that finished in it."""
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        self.core.scheduler.check()
        self.worker.check()
        done = []
        for output in (outputs or {}).values():
            for item in output.outputs:
                self.tokens[item.request_id] += item.new_token_ids
                if item.new_logprobs is not None:
                    self.logprobs[item.request_id].append(item.new_logprobs)
                if item.finish_reason is not None:
                    self.finished[item.request_id] = item.finish_reason
                    done.append(item.request_id)
        return done

    def run(self, most_steps=20_000):
        """Step until nothing is left."""
        for _ in range(most_steps):
            if not self.busy:
                return
            self.step()
        raise AssertionError(f"still busy after {most_steps} steps: {self.core.scheduler.get_request_counts()}")


@contextmanager
def engine(model, **args):
    """An `Engine` that is shut down on the way out, its mesh closed."""
    made = Engine(model, **args)
    try:
        yield made
    finally:
        made.core.shutdown()
