"""The adapter contract for models that compute on the host: all of it but the model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from vllm_tt.host.checkpoint import checkpoint_folder
from vllm_tt.host.device import HostDevice
from vllm_tt.host.kv_cache import PagedKV
from vllm_tt.host.step import DecodeStep, PrefillStep
from vllm_tt.host.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from vllm_tt.host.resident import Resident

__all__ = ["HostAdapter"]


class HostAdapter:
    """A bundle's class derives from this one and gives the model.

    The model is a module that is called with a `Step` and the KV cache, an item for each of its layers of
    attention, and returns the logits of the step's last tokens, float32 [rows, V]. A class that takes less than what
    is declared here declares what it takes.
    """

    model_capabilities: ClassVar[dict[str, bool | int]] = {
        "supports_prefix_caching": True,
        "supports_chunked_prefill": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_lanes": True,
        "supports_device_seeds": True,
        "supports_row_logits": True,
        "max_device_logprobs": 20,  # as many as the OpenAI API lets clients ask for
    }
    decode_input_update_contract = 1

    @classmethod
    def build_model(cls, hf_config: Any) -> nn.Module:
        """The model without its weights; parameters are named as in checkpoints. Called on the meta device."""
        raise NotImplementedError

    @classmethod
    def tied_weights(cls, hf_config: Any) -> Mapping[str, str]:
        """Parameters that share those of another name."""
        tied = getattr(hf_config, "tie_word_embeddings", False)
        return {"lm_head.weight": "model.embed_tokens.weight"} if tied else {}

    @classmethod
    def get_max_tokens_all_users(cls, *, max_model_len: int, max_num_seqs: int, **_: Any) -> int:
        """The host's memory is the limit; tt-metal's usual 131,072 tokens are plenty for it."""
        return min(max_model_len * max_num_seqs, max(131_072, max_model_len))

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int = 1,
        optimizations: str | None = None,
    ) -> HostAdapter:
        with torch.device("meta"):
            model = cls.build_model(hf_config)
        load_weights(model, checkpoint_folder(hf_config), cls.tied_weights(hf_config))
        return cls(model, hf_config, mesh_device, max_batch_size, tt_data_parallel)

    def __init__(self, model: nn.Module, hf_config: Any, mesh_device: Any, slots: int, lanes: int) -> None:
        text = hf_config.get_text_config()
        self.model = model
        self.kv_heads = text.num_key_value_heads or text.num_attention_heads
        max_logprobs = self.model_capabilities.get("max_device_logprobs", 0)
        self.device = HostDevice(mesh_device, vocab_size=text.vocab_size, max_logprobs=max_logprobs)
        self.lanes, self.rows_per_lane = lanes, slots // lanes

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: torch.dtype, num_layers: int) -> list[PagedKV]:
        """Pages for every lane. ``shape`` counts the KV heads of one chip; the host holds them all."""
        pages, _, page_size, head_size = shape
        if dtype.itemsize >= 2:
            self.model.to(dtype)  # the server's --dtype, which is first known here
        dtype = next(self.model.parameters()).dtype
        return [
            PagedKV.allocate(pages * self.lanes, self.kv_heads, page_size, head_size, dtype) for _ in range(num_layers)
        ]

    def warmup_model_prefill(self, *, enable_trace: bool, kv_cache: list[PagedKV], can_sample_on_device: bool) -> None:
        """One prompt of a page, written to the null page."""
        length = torch.tensor([kv_cache[0].page_size])
        self.prefill_forward(
            tokens=torch.zeros((1, int(length)), dtype=torch.int32),
            page_table=torch.zeros((1, 1), dtype=torch.int32),
            kv_cache=kv_cache,
            prompt_lens=length.numpy(),
            start_pos=(length * 0).numpy(),
            empty_slots=[0],
        )

    def warmup_model_decode(
        self,
        *,
        enable_trace: bool,
        kv_cache: list[PagedKV],
        can_sample_on_device: bool,
        max_batch_size: int,
        num_blocks: int,
    ) -> None:
        """Every slot at position 0, all written to the null page."""
        self.decode_forward(
            tokens=torch.zeros((max_batch_size, 1), dtype=torch.int32),
            page_table=torch.zeros((max_batch_size, num_blocks), dtype=torch.int32),
            kv_cache=kv_cache,
            start_pos=torch.zeros(max_batch_size, dtype=torch.int32),
        )

    def prefill_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: list[PagedKV],
        prompt_lens: npt.NDArray[np.int64],
        start_pos: npt.NDArray[np.int64],
        empty_slots: list[int],
        enable_trace: bool = False,
        **sampling: Any,
    ) -> Any:
        """Logits [n, 1, V], or what ``sampling`` (sampling_params, logits_rows) asks for."""
        slots = torch.tensor(empty_slots)
        table = self.pages_of_lanes(page_table, slots, kv_cache)
        step = PrefillStep.build(tokens, table, start_pos, prompt_lens, kv_cache[0].page_size, slots)
        compute = partial(self.model, step, kv_cache)
        return self.device.prefill(compute, tokens=tokens, prompt_lens=prompt_lens, **sampling)

    def decode_forward(
        self, *, kv_cache: list[PagedKV], enable_trace: bool = False, read_from_device: bool = True, **inputs: Any
    ) -> Any:
        """Logits [B, 1, V], or what ``inputs`` (sampling_params, logits_rows, ...) ask for; or a handle, at once."""
        out = self.device.decode(partial(self.decode_step, kv_cache), **inputs)
        return out.result() if read_from_device else out

    def decode_step(self, kv_cache: list[PagedKV], held: Resident) -> torch.Tensor:
        """In the device's thread, with what the device holds: logits [t, V] of the slots that are not idle."""
        table = self.pages_of_lanes(held.page_table, torch.arange(len(held.tokens)), kv_cache)
        step = DecodeStep.build(held.tokens, table, held.positions, kv_cache[0].page_size)
        logits: torch.Tensor = self.model(step, kv_cache)
        return logits

    def read_decode_output(self, out: Future[Any], async_read: bool = True) -> tuple[Future[Any], list[Any]]:
        return self.device.read(out, async_read)

    def process_decode_output_host(self, out: Future[Any], is_tokens: bool) -> Any:
        """Waits for the step; what went wrong in it is raised here."""
        return out.result()

    def pages_of_lanes(self, page_table: torch.Tensor, slots: torch.Tensor, kv_cache: list[PagedKV]) -> torch.Tensor:
        """Page ids count from zero in every lane; in the host's cache the lanes follow one another."""
        pages_per_lane = len(kv_cache[0].keys) // self.lanes
        return page_table + (slots // self.rows_per_lane * pages_per_lane)[:, None]
