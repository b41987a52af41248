"""The paged-hash model behind the adapter contract; every call that breaks the contract raises.

Environment: PAGED_HASH_CAPABILITIES names the capabilities that are on (comma separated, ``name=value``
for a limit), PAGED_HASH_CONTRACT=1 declares the explicit commands of decode, PAGED_HASH_MAX_TOKENS sizes
the cache, PAGED_HASH_PAD_TO makes prefill also write a padded tail, PAGED_HASH_SPARE_PAGES allows pages
past those that a row needs, PAGED_HASH_POISON is a token that prefill fails on, PAGED_HASH_COMPUTE is
when the device computes (``submit``, ``read`` or ``thread``), PAGED_HASH_DEPTH how many decodes may be
submitted and not read. Without ``supports_prefix_caching`` the model has state by slot too.

Whether the events of a readback were synchronised cannot be seen from here: `ttnn.event_synchronize`
takes the runtime's own events alone and leaves no trace on them.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import torch
from paged_hash_checks import check_decode_shapes, check_prefill_call, require
from paged_hash_device import Device
from paged_hash_inputs import Commands, DecodeCall, check_row_list, histories
from paged_hash_lanes import LaneMeshes
from paged_hash_parameters import Limits, Row, check_parameters
from paged_hash_queue import Handle, Queue
from paged_hash_rows import Rows
from paged_hash_store import PagedStore


def _setting(name: str, default: int) -> int:
    return int(os.environ.get(f"PAGED_HASH_{name}", default))


def _declared() -> dict[str, Any]:
    pairs = [one.partition("=") for one in os.environ.get("PAGED_HASH_CAPABILITIES", "").split(",") if one]
    return {name: int(value) if value else True for name, _, value in pairs}


class PagedHashForCausalLM:
    model_capabilities = _declared()
    if os.environ.get("PAGED_HASH_CONTRACT"):
        decode_input_update_contract = _setting("CONTRACT", 1)

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        return _setting("MAX_TOKENS", 131_072)

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
    ) -> PagedHashForCausalLM:
        return cls(hf_config, mesh_device, max_batch_size, tt_data_parallel)

    def __init__(self, hf_config: Any, mesh_device: Any, slots: int, lanes: int) -> None:
        self.hf_config = hf_config
        self.slots, self.lanes = slots, lanes
        self.meshes = LaneMeshes(mesh_device, lanes)
        self.limits = Limits.of(self.model_capabilities, hf_config.vocab_size, self.meshes.chips)
        self.explicit = getattr(self, "decode_input_update_contract", None) == 1
        self.pad_to, self.poison = _setting("PAD_TO", 0), _setting("POISON", -1)
        self.device: Device | None = None
        self.width = 0
        self.warmed_up_sampling: dict[str, bool] = {}
        self.record: dict[str, Any] = {
            "steps": Counter(),
            "reloads": Counter(),
            "decodes_of_row": Counter(),
            "row_logits": 0,
            "sampled_dormant": 0,
            "unread": 0,
            "most_unread": 0,
        }
        """Steps by phase and sampler, decodes by what they load, decodes of each admitted row, and the rest."""
        self.queue = Queue(os.environ.get("PAGED_HASH_COMPUTE", "submit"), _setting("DEPTH", 2), self.record)

    def allocate_kv_cache(self, shape: tuple[int, int, int, int], dtype: torch.dtype, num_layers: int) -> PagedStore:
        require(self.device is None, "a second KV cache")
        require(len(shape) == 4 and isinstance(dtype, torch.dtype) and num_layers > 0, "KV cache {shape}", shape=shape)
        self.meshes.allocate(shape)
        pages, _, page_size, _ = shape
        rows = Rows(
            PagedStore.allocate(pages * self.lanes, page_size),
            self.slots,
            self.lanes,
            chunked=self._declares("supports_chunked_prefill"),
            caching=self._declares("supports_prefix_caching"),
            spare=_setting("SPARE_PAGES", 0),
        )
        self.device = Device(rows, self.hf_config, self.limits, self.slots, self.record)
        return rows.store

    def warmup_model_prefill(self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool) -> None:
        self._ready(kv_cache)
        self.warmed_up_sampling["prefill"] = can_sample_on_device

    def warmup_model_decode(
        self, *, enable_trace: bool, kv_cache: Any, can_sample_on_device: bool, max_batch_size: int, num_blocks: int
    ) -> None:
        self._ready(kv_cache)
        require(max_batch_size == self.slots, "warm-up of {got} slots", got=max_batch_size)
        self.width = num_blocks
        self.warmed_up_sampling["decode"] = can_sample_on_device

    def prefill_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: PagedStore,
        enable_trace: bool,
        prompt_lens: np.ndarray,
        start_pos: np.ndarray,
        empty_slots: list[int],
        sampling_params: Any = None,
        logits_rows: list[int] | None = None,
    ) -> Any:
        device = self._ready(kv_cache)
        check_prefill_call(tokens, page_table, prompt_lens, start_pos, empty_slots, self.slots)
        self._check_width(page_table)
        parameters = self._parameters("prefill", sampling_params, logits_rows, len(empty_slots))
        rows = [tokens[i, :end].numpy().astype(np.int64) for i, end in enumerate(prompt_lens.tolist())]
        require(not any(self.poison in row for row in rows), "token {token} is poison", token=self.poison)
        table = page_table.numpy().astype(np.int64)
        self.meshes.send(table, np.array(empty_slots), self.slots // self.lanes)
        return self.queue.run(
            lambda: device.prefill(empty_slots, table, rows, start_pos, parameters, logits_rows, self.pad_to)
        )

    def decode_forward(
        self,
        *,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        kv_cache: PagedStore,
        start_pos: torch.Tensor,
        enable_trace: bool,
        read_from_device: bool,
        sampling_params: Any = None,
        prompt_tokens: torch.Tensor | None = None,
        output_tokens: torch.Tensor | None = None,
        logits_rows: list[int] | None = None,
        **commands: bool,
    ) -> Any:
        device = self._ready(kv_cache)
        check_decode_shapes(tokens, page_table, start_pos, self.slots)
        self._check_width(page_table)
        parameters = self._parameters("decode", sampling_params, logits_rows, self.slots)
        call = DecodeCall(
            commands=Commands.of(commands, explicit=self.explicit, sampled=parameters is not None),
            tokens=tokens.numpy().astype(np.int64)[:, 0],
            positions=start_pos.numpy().astype(np.int64),
            page_table=page_table.numpy().astype(np.int64),
            parameters=parameters,
            histories=histories(prompt_tokens, output_tokens, self.slots),
            logits_rows=logits_rows,
        )
        call.check()
        self.meshes.send(call.page_table, np.arange(self.slots), self.slots // self.lanes)
        if read_from_device or not self._declares("supports_async_decode"):
            return self.queue.run(lambda: device.decode(call))
        return self.queue.submit(lambda: device.decode(call), is_tokens=parameters is not None)

    def read_decode_output(self, out: Handle, *, async_read: bool) -> tuple[Handle, list[Any]]:
        require(async_read is True, "async_read={got}", got=async_read)
        self.queue.start_reading(out)
        return out, self.meshes.events()

    def process_decode_output_host(self, out: Handle, *, is_tokens: bool) -> Any:
        return self.queue.take(out, is_tokens=is_tokens)

    def _declares(self, name: str) -> bool:
        return bool(self.model_capabilities.get(name, False))

    def _ready(self, kv_cache: Any) -> Device:
        require(self.device is not None, "a call before there is a KV cache")
        assert self.device is not None
        require(kv_cache is self.device.rows.store, "a KV cache of somebody else")
        return self.device

    def _check_width(self, page_table: torch.Tensor) -> None:
        found = page_table.shape[1]
        self.width = self.width or found
        require(found == self.width, "page table of {got}, not {w}", got=found, w=self.width)

    def _parameters(self, phase: str, params: Any, logits_rows: Any, count: int) -> list[Row] | None:
        """The rows' sampling parameters; None when the host samples."""
        if params is None:
            require(logits_rows is None, "logits_rows without sampling_params")
            return None
        fine = self._declares("supports_sample_on_device") and self.warmed_up_sampling.get(phase, True)
        require(fine, "sampling_params in a {phase}, which does not sample on this device", phase=phase)
        if logits_rows is not None:
            require(self._declares("supports_row_logits"), "logits_rows without supports_row_logits")
            check_row_list(logits_rows, count)
        return check_parameters(params, count, self.limits)
