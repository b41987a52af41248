"""The only caller of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.errors import TTError
from vllm_tt.log import get_logger

if TYPE_CHECKING:
    from vllm_tt.batch.step_input import DecodeInput, PrefillInput

__all__ = ["Forward", "IncompleteAdapter", "UnexpectedOutput", "complete"]

log = get_logger(__name__)


class IncompleteAdapter(TTError):
    """{owner}.initialize_vllm_model() returned {found} that cannot be served: it has no {missing}."""


class UnexpectedOutput(TTError):
    """{owner}.{method}() must return host logits of {rows} rows, [{rows}, 1, vocabulary] or
    [{rows}, tokens, vocabulary]; got {found}.
    """


def complete(adapter: Any, owner: type, *, warm_up: bool) -> Any:
    """``adapter`` when it has every method that is always called; ``owner`` is the class that made it."""
    caches = ("allocate_kv_cache", "allocate_kv_cache_per_layer")
    needed = ["prefill_forward", "decode_forward", *(["warmup_model_prefill", "warmup_model_decode"] * warm_up)]
    missing = [f"{name}()" for name in needed if not callable(getattr(adapter, name, None))]
    if not any(callable(getattr(adapter, name, None)) for name in caches):
        missing.append("allocate_kv_cache()")
    if missing:
        found = "None" if adapter is None else f"an object of {type(adapter).__name__}"
        raise IncompleteAdapter(owner=owner.__name__, found=found, missing=" and no ".join(missing))
    return adapter


class Forward:
    """A loaded adapter with its KV cache; every call of the contract is made here."""

    def __init__(self, adapter: Any, kv_cache: Any, trace_mode: str) -> None:
        self._adapter = adapter
        self._kv_cache = kv_cache
        self._trace_prefill = trace_mode == "all"
        self._trace_decode = trace_mode in ("all", "decode_only")

    def prefill(self, inputs: PrefillInput) -> torch.Tensor:
        """Logits [n, V] of each row's last token."""
        with torch.no_grad():
            out = self._adapter.prefill_forward(
                tokens=inputs.tokens,
                page_table=inputs.page_table,
                kv_cache=self._kv_cache,
                enable_trace=self._trace_prefill,
                prompt_lens=inputs.prompt_lens,
                start_pos=inputs.start_pos,
                empty_slots=inputs.empty_slots,
            )
        return self._last_logits(out, "prefill_forward", len(inputs.empty_slots))

    def decode(self, inputs: DecodeInput) -> torch.Tensor:
        """Logits [B, V], indexed by slot; rows of idle slots have no meaning."""
        with torch.no_grad():
            out = self._adapter.decode_forward(
                tokens=inputs.tokens,
                page_table=inputs.page_table,
                kv_cache=self._kv_cache,
                start_pos=inputs.start_pos,
                enable_trace=self._trace_decode,
                read_from_device=True,
                **self._reload_commands(),
            )
        if not isinstance(out, torch.Tensor) and hasattr(self._adapter, "process_decode_output_host"):
            out = self._adapter.process_decode_output_host(out, is_tokens=False)
        return self._last_logits(out, "decode_forward", len(inputs.start_pos))

    def warm_up(self, *, rows: int, max_model_len: int, pages_per_row: int) -> None:
        """Compile everything untraced, then capture the traces that are on."""
        with torch.no_grad():
            self._warm_up_once(False, False, rows, max_model_len, pages_per_row)
            if self._trace_prefill or self._trace_decode:
                self._warm_up_once(self._trace_prefill, self._trace_decode, rows, max_model_len, pages_per_row)

    def _warm_up_once(
        self, trace_prefill: bool, trace_decode: bool, rows: int, max_model_len: int, pages_per_row: int
    ) -> None:
        # Operators' tools match the start of these two lines.
        how = {False: "compiling", True: "capturing the trace"}
        log.info("Warming up prefill for sequence length: %d and shorter, %s", max_model_len, how[trace_prefill])
        self._adapter.already_warmed_up_prefill = False
        self._adapter.warmup_model_prefill(
            enable_trace=trace_prefill, kv_cache=self._kv_cache, can_sample_on_device=False
        )
        log.info("Warming up decode: %d rows, %s", rows, how[trace_decode])
        self._adapter.warmup_model_decode(
            enable_trace=trace_decode,
            kv_cache=self._kv_cache,
            can_sample_on_device=False,
            max_batch_size=rows,
            num_blocks=pages_per_row,
        )

    def _reload_commands(self) -> dict[str, bool]:
        """Host-sampled tokens are new to the device at every step: all inputs are loaded again."""
        if getattr(self._adapter, "decode_input_update_contract", None) != 1:
            return {}
        return {
            "reload_inputs": True,
            "reload_page_table": False,
            "reload_sampling_params": False,
            "reset_sampling_state": False,
        }

    def _last_logits(self, out: Any, method: str, rows: int) -> torch.Tensor:
        if not isinstance(out, torch.Tensor) or out.dim() != 3 or out.shape[0] != rows:
            found = f"a tensor of shape {list(out.shape)}" if isinstance(out, torch.Tensor) else type(out).__name__
            raise UnexpectedOutput(owner=type(self._adapter).__name__, method=method, rows=rows, found=found)
        return out[:, -1, :]
