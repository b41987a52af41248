"""The least that a step can take: the same engine with a worker that returns constant tokens."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ModelRunnerOutput

__all__ = ["constant_tokens"]

TOKEN = 17


@contextmanager
def constant_tokens(worker: Any) -> Iterator[None]:
    """Replace what ``worker`` does in a step, for a while. Requests must begin and end within."""
    constant = _Constant()
    worker.execute_model, worker.sample_tokens = constant.execute_model, constant.sample_tokens
    try:
        yield
    finally:
        del worker.execute_model, worker.sample_tokens


class _Constant:
    def __init__(self) -> None:
        from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

        self._make, self._empty = ModelRunnerOutput, EMPTY_MODEL_RUNNER_OUTPUT
        self._plan: Any = None

    def execute_model(self, output: SchedulerOutput) -> ModelRunnerOutput | None:
        if not output.total_num_scheduled_tokens:
            return self._empty
        self._plan = output.plan
        return None

    def sample_tokens(self, grammar: object) -> ModelRunnerOutput:  # noqa: ARG002 - vLLM's signature
        names = self._plan.req_ids
        return self._make(
            req_ids=list(names),
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[] if more else [TOKEN] for more in self._plan.intermediate.tolist()],
        )
