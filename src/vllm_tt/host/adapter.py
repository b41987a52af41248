"""The adapter contract for models that compute on the host: all of it but the model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from vllm_tt.host.checkpoint import checkpoint_folder
from vllm_tt.host.device import HostDevice
from vllm_tt.host.kv_cache import PagedKV
from vllm_tt.host.step import DecodeStep, PrefillStep
from vllm_tt.host.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from vllm_tt.host.resident import Resident
    from vllm_tt.host.step import Step

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
    weight_prefixes: ClassVar[Mapping[str, str]] = {}
    """Beginnings of names in checkpoints, and what they are in the model."""

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
        load_weights(model, checkpoint_folder(hf_config), cls.tied_weights(hf_config), cls.weight_prefixes)
        return cls(model, hf_config, mesh_device, max_batch_size, tt_data_parallel)

    def __init__(self, model: nn.Module, hf_config: Any, mesh_device: Any, slots: int, lanes: int) -> None:
        text = hf_config.get_text_config()
        self.model = model
        self.kv_heads = text.num_key_value_heads or text.num_attention_heads
        max_logprobs = self.model_capabilities.get("max_device_logprobs", 0)
        self.device = HostDevice(mesh_device, vocab_size=text.vocab_size, max_logprobs=max_logprobs)
        self.lanes, self.rows_per_lane = lanes, slots // lanes

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: torch.dtype, num_layers: int) -> list[PagedKV]:
        """For layers that cache alike."""
        return self.allocate_kv_cache_per_layer([(shape, dtype, layer) for layer in range(num_layers)])

    def allocate_kv_cache_per_layer(
        self, specs: list[tuple[tuple[int, int, int, int], torch.dtype, int]]
    ) -> list[PagedKV]:
        """Pages for every lane. Shapes count the KV heads of one chip; the host holds them all.

        Layers that share a buffer share their pages: those of one are never those of another.
        """
        served = specs[0][1]
        if served.itemsize >= 2:
            self.model.to(served)  # the server's --dtype, which is first known here
        dtype = next(self.model.parameters()).dtype
        shapes = {buffer: shape for shape, _, buffer in specs}
        buffers = {
            buffer: PagedKV.allocate(pages * self.lanes, self.kv_heads, page_size, head_size, dtype)
            for buffer, (pages, _, page_size, head_size) in shapes.items()
        }
        return [buffers[buffer] for _, _, buffer in specs]

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
        page_tables_per_layer: list[torch.Tensor] | None = None,
        model_inputs: Mapping[str, Any] = MappingProxyType({}),
        **sampling: Any,
    ) -> Any:
        """Logits [n, 1, V], or what ``sampling`` (sampling_params, logits_rows) asks for.

        ``model_inputs`` is what a derived class calls the model with beside the step.
        """
        slots = torch.tensor(empty_slots)
        build = partial(PrefillStep.build, tokens, starts=start_pos, ends=prompt_lens, slots=slots)
        step = self.step_of_layers(build, page_tables_per_layer or [page_table] * len(kv_cache), slots, kv_cache)
        compute = partial(self.model, step, kv_cache, **model_inputs)
        return self.device.prefill(compute, tokens=tokens, prompt_lens=prompt_lens, **sampling)

    def decode_forward(
        self, *, kv_cache: list[PagedKV], enable_trace: bool = False, read_from_device: bool = True, **inputs: Any
    ) -> Any:
        """Logits [B, 1, V], or what ``inputs`` (sampling_params, logits_rows, ...) ask for; or a handle, at once."""
        out = self.device.decode(partial(self.decode_step, kv_cache), **inputs)
        return out.result() if read_from_device else out

    def decode_step(self, kv_cache: list[PagedKV], held: Resident) -> torch.Tensor:
        """In the device's thread, with what the device holds: logits [t, V] of the slots that are not idle."""
        tables = held.page_tables_per_layer or [held.page_table] * len(kv_cache)
        build = partial(DecodeStep.build, held.tokens, start_pos=held.positions)
        step = self.step_of_layers(build, tables, torch.arange(len(held.tokens)), kv_cache)
        logits: torch.Tensor = self.model(step, kv_cache, **self.decode_inputs(step, held))
        return logits

    def decode_inputs(self, step: Step, held: Resident) -> Mapping[str, Any]:
        """What a derived class calls the model with beside a decode's ``step``."""
        return {}

    def read_decode_output(self, out: Future[Any], async_read: bool = True) -> tuple[Future[Any], list[Any]]:
        return self.device.read(out, async_read)

    def process_decode_output_host(self, out: Future[Any], is_tokens: bool) -> Any:
        """Waits for the step; what went wrong in it is raised here."""
        return out.result()

    def step_of_layers(
        self, build: Callable[..., Step], tables: list[torch.Tensor], slots: torch.Tensor, kv_cache: list[PagedKV]
    ) -> Step:
        """What ``build(page_table=..., page_size=...)`` makes: for each layer of ``tables``, but once for a table."""
        steps: dict[int, Step] = {}
        for table, cache in zip(tables, kv_cache, strict=True):
            if id(table) not in steps:
                pages = self.pages_of_lanes(table, slots, kv_cache)
                steps[id(table)] = build(page_table=pages, page_size=cache.page_size)
        layers = tuple(steps[id(table)] for table in tables)
        return layers[0] if len(steps) == 1 else replace(layers[0], layers=layers)

    def pages_of_lanes(self, page_table: torch.Tensor, slots: torch.Tensor, kv_cache: list[PagedKV]) -> torch.Tensor:
        """Page ids count from zero in every lane; in the host's cache the lanes follow one another."""
        pages_per_lane = len(kv_cache[0].keys) // self.lanes
        return page_table + (slots // self.rows_per_lane * pages_per_lane)[:, None]
