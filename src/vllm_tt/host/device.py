"""Stands for the device of an adapter that computes on the host."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.host.resident import DecodeInputs, Resident
from vllm_tt.host.row_params import RowParams
from vllm_tt.host.sampler import Computed, HostDeviceSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from vllm_tt.contract import DeviceSamplingParams
    from vllm_tt.host.resident import Update

    Prefill: TypeAlias = Callable[[], torch.Tensor]
    Decode: TypeAlias = Callable[[Resident], torch.Tensor]

__all__ = ["HostDevice"]


class HostDevice:
    """A thread that computes steps in the order they come, and what it keeps from one to the next."""

    def __init__(self, mesh_device: Any, *, vocab_size: int, max_logprobs: int) -> None:
        """``mesh_device`` is where events are recorded; ``max_logprobs`` is what the adapter declares."""
        self._mesh = mesh_device
        self._vocab_size = vocab_size
        self._max_logprobs = max_logprobs
        self._resident = Resident(HostDeviceSampler(vocab_size, max_logprobs))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="host-device")

    def prefill(
        self,
        compute: Prefill,
        *,
        tokens: torch.Tensor,
        prompt_lens: npt.NDArray[np.int64],
        sampling_params: DeviceSamplingParams | None = None,
        logits_rows: Sequence[int] | None = None,
    ) -> Any:
        """What `Adapter.prefill_forward` returns, of the rows' logits, float32 [n, V], that ``compute()`` gives."""

        def run() -> Any:
            logits = compute()
            if sampling_params is None:
                return logits[:, None]
            sampler = HostDeviceSampler(self._vocab_size, self._max_logprobs)
            sampler.load(RowParams.of(sampling_params))
            sampler.reset(prompt_tokens=_prompts(tokens, prompt_lens))
            rows = Computed(rows=list(range(len(logits))), logits=logits, positions=prompt_lens.tolist())
            return sampler.sample(rows, logits_rows).returned()

        return self._submit(run).result()

    def decode(self, compute: Decode, **inputs: Any) -> Future[Any]:
        """Submit a decode. Its result, later, is what `Adapter.decode_forward` returns when it reads at once.

        ``inputs`` are the arguments of that call, as far as `DecodeInputs` has them. In its turn
        ``compute(held)`` gives, of what the device then holds, the logits, float32 [t, V], of the slots that are not at
        position -1.
        """
        given = DecodeInputs(**inputs)
        update, sampled, rows = given.update(), given.sampling_params is not None, list(given.logits_rows or ())
        return self._submit(lambda: self._decode(compute, update, rows if sampled else None))

    def read(self, out: Future[Any], async_read: bool) -> tuple[Future[Any], list[Any]]:
        """What `Adapter.read_decode_output` returns for a decode that was submitted."""
        if not async_read or self._mesh is None:
            return out, []
        import ttnn

        return out, [ttnn.record_event(self._mesh, 0)]

    def _decode(self, compute: Decode, update: Update, logits_rows: list[int] | None) -> Any:
        """``logits_rows`` is None for a decode that returns logits."""
        held = self._resident
        held.load(update)
        logits = torch.zeros(0, self._vocab_size)
        if held.live:
            logits = compute(held)
        if logits_rows is not None:
            return held.sample(logits, logits_rows).returned()
        out = torch.zeros(len(held.tokens), 1, self._vocab_size)
        out[held.live, 0] = logits
        return out

    def _submit(self, run: Callable[[], Any]) -> Future[Any]:
        return self._thread.submit(torch.no_grad()(run))


def _prompts(tokens: torch.Tensor, prompt_lens: npt.NDArray[np.int64]) -> torch.Tensor:
    """``tokens`` [n, longest] with -1 past each row's end."""
    inside = torch.arange(tokens.shape[1]) < torch.from_numpy(prompt_lens)[:, None]
    return torch.where(inside, tokens, -1)
