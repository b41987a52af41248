"""A model without compute, for benchmarks of everything around it.

Device-sampled calls return one constant token, other calls one prebuilt tensor of logits whose likeliest token is
that same one. Between reloads nothing is looked at, so nothing here hides or adds work of the host.

Environment: NOOP_DECODE_MS is the device's time for a decode step (0), NOOP_LOGITS_DTYPE that of the logits (float32),
NOOP_ROW_LOGITS=0 takes the capability supports_row_logits away.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from no_op_device import Device

TOKEN = 17
"""What every row samples: no special token."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decode step on the device, to be read back."""

    out: Any
    end: int


class NoOpForCausalLM:
    model_capabilities = {
        "supports_sample_on_device": True,
        "supports_async_decode": True,
        "supports_chunked_prefill": True,
        "supports_lanes": True,
        "supports_row_logits": os.environ.get("NOOP_ROW_LOGITS", "1") != "0",
    }
    decode_input_update_contract = 1

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        return max_model_len * max_num_seqs

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int,
        optimizations: str | None,
    ) -> NoOpForCausalLM:
        return cls(hf_config.vocab_size, mesh_device, max_batch_size)

    def __init__(self, vocab_size: int, mesh: Any, slots: int) -> None:
        import ttnn

        # An emulated device passes every event at once, and cannot take more than 8,191 of them.
        self.event = ttnn.record_event(mesh, 0)
        self.device = Device(float(os.environ.get("NOOP_DECODE_MS", "0")))
        dtype = getattr(torch, os.environ.get("NOOP_LOGITS_DTYPE", "float32"))
        self.logits = make_logits(slots, vocab_size, dtype)
        self.tokens = torch.full((slots,), TOKEN, dtype=torch.int32)
        self.logprobs = torch.zeros(slots)

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: torch.dtype, num_layers: int) -> list[Any]:
        return []

    def warmup_model_prefill(self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool) -> None:
        pass

    def warmup_model_decode(
        self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool, max_batch_size: int, num_blocks: int
    ) -> None:
        pass

    def prefill_forward(
        self,
        *,
        tokens: Any,
        page_table: Any,
        kv_cache: Any,
        enable_trace: bool,
        prompt_lens: Any,
        start_pos: Any,
        empty_slots: list[int],
        sampling_params: Any = None,
        logits_rows: list[int] | None = None,
    ) -> Any:
        self.device.drain()  # a prefill takes no time, but it runs after the decode steps before it
        return self._output(len(empty_slots), sampling_params, logits_rows)

    def decode_forward(
        self,
        *,
        tokens: Any,
        page_table: Any,
        kv_cache: Any,
        start_pos: Any,
        enable_trace: bool,
        read_from_device: bool,
        sampling_params: Any = None,
        logits_rows: list[int] | None = None,
        reload_inputs: bool = True,
        reload_page_table: bool = False,
        reload_sampling_params: bool = True,
        reset_sampling_state: bool = False,
        prompt_tokens: Any = None,
        output_tokens: Any = None,
    ) -> Any:
        step = Step(self._output(len(self.tokens), sampling_params, logits_rows), self.device.submit())
        if not read_from_device:
            return step
        return self.process_decode_output_host(step, is_tokens=sampling_params is not None)

    def read_decode_output(self, out: Step, async_read: bool = True) -> tuple[Step, list[Any]]:
        """The event is real and has passed: the device's time is waited for below."""
        return out, [self.event] if async_read else []

    def process_decode_output_host(self, out: Any, is_tokens: bool) -> Any:
        if not isinstance(out, Step):
            return out
        self.device.wait(out.end)
        return out.out

    def _output(self, rows: int, sampling_params: Any, logits_rows: list[int] | None) -> Any:
        if sampling_params is None:
            return self.logits[:rows]
        if logits_rows is not None:
            return self.tokens[:rows], None, self.logits[: len(logits_rows), 0]
        if any(sampling_params.enable_log_probs):
            return self.tokens[:rows], self.logprobs[:rows]
        return self.tokens[:rows]


def make_logits(slots: int, vocab_size: int, dtype: torch.dtype) -> torch.Tensor:
    """[slots, 1, vocab_size]: few likely tokens and a long tail, as of a language model; the same in every process."""
    ranks = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0)) + 1
    logits = -1.5 * ranks.log().repeat(slots, 1, 1)
    for slot in range(slots):
        logits[slot] = logits[slot].roll(slot)
    logits[:, 0, TOKEN] = 1.0
    return logits.to(dtype)
