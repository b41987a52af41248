"""The only caller of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from vllm_tt.batch.images import image_arguments
from vllm_tt.errors import TTError
from vllm_tt.log import get_logger
from vllm_tt.worker.outputs import parse_logits, parse_rope_deltas, parse_tokens

if TYPE_CHECKING:
    from vllm_tt.batch.step_input import DecodeInput, PrefillInput
    from vllm_tt.sampling.device import DeviceSampling
    from vllm_tt.worker.kv_groups import KVGroups
    from vllm_tt.worker.outputs import Output
    from vllm_tt.worker.reloads import Reload

__all__ = ["Forward", "Handle", "IncompleteAdapter", "Traits", "UnreadableDecode", "complete"]

log = get_logger(__name__)


class IncompleteAdapter(TTError):
    """{owner}.initialize_vllm_model() returned {found} that cannot be served: it has no {missing}."""


class UnreadableDecode(TTError):
    """{owner} declares supports_async_decode and its decode_forward() left its output on the device (an object of
    {found}), but it has no read_decode_output() to read it with.
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Handle:
    """A decode that was submitted; `Forward.read` gives its output."""

    out: Any
    rows: int
    sampling: DeviceSampling | None
    events: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Traits:
    """What the calls of a model bring, beyond those of a text model with one kind of layers."""

    groups: KVGroups | None = None
    """Those of the KV cache, if there are several."""
    images: tuple[str, ...] = ()
    """The keyword arguments that images come in; none for a model that takes no images."""
    request_rope: bool = False
    """Rotary positions differ from request to request."""


_PLAIN = Traits()


class Forward:
    """A loaded adapter with its KV cache; every call of the contract is made here."""

    def __init__(
        self,
        adapter: Any,
        kv_cache: Any,
        trace_mode: str,
        *,
        traits: Traits = _PLAIN,
        sample_on_device: bool = False,
    ) -> None:
        self._adapter = adapter
        self._kv_cache = kv_cache
        self._traits = traits
        self._trace_prefill = trace_mode == "all"
        self._trace_decode = trace_mode in ("all", "decode_only")
        self._sample_on_device = sample_on_device
        self._release = getattr(adapter, "release_slots", None)
        self.explicit_reloads = getattr(adapter, "decode_input_update_contract", None) == 1
        """Decode is told what to load again, command by command."""

    def prefill(self, inputs: PrefillInput, sampling: DeviceSampling | None = None) -> Output:
        """The n rows' tokens, or their last tokens' logits [n, V]."""
        with torch.no_grad():
            out = self._adapter.prefill_forward(
                tokens=inputs.tokens,
                **self._pages(inputs.page_tables),
                kv_cache=self._kv_cache,
                enable_trace=self._trace_prefill,
                prompt_lens=inputs.prompt_lens,
                start_pos=inputs.start_pos,
                empty_slots=inputs.empty_slots,
                **image_arguments(inputs.images, inputs.start_pos.tolist(), self._traits.images),
                **({} if sampling is None else sampling.keywords()),
            )
        rows = len(inputs.empty_slots)
        if not self._traits.request_rope:
            return self._parse(out, "prefill_forward", rows, sampling)
        out, deltas = parse_rope_deltas(out, self._named("prefill_forward"), rows)
        return replace(self._parse(out, "prefill_forward", rows, sampling), rope_deltas=deltas)

    def decode(
        self, inputs: DecodeInput, reload: Reload, sampling: DeviceSampling | None = None, *, ahead: bool = False
    ) -> Handle:
        """Submit a decode of all B slots; with ``ahead`` its output stays on the device until it is read."""
        with torch.no_grad():
            out = self._adapter.decode_forward(
                tokens=inputs.tokens,
                **self._pages(inputs.page_tables),
                kv_cache=self._kv_cache,
                start_pos=inputs.start_pos,
                enable_trace=self._trace_decode,
                read_from_device=not ahead,
                **self._rope_deltas(inputs),
                **self._commands(reload, sampling),
            )
            events: Any = ()
            if ahead and not _on_host(out):
                if not hasattr(self._adapter, "read_decode_output"):
                    raise UnreadableDecode(owner=type(self._adapter).__name__, found=type(out).__name__)
                out, events = self._adapter.read_decode_output(out, async_read=True)
        events = tuple(events) if isinstance(events, (list, tuple)) else (events,)
        return Handle(out=out, rows=len(inputs.start_pos), sampling=sampling, events=events)

    def read(self, handle: Handle) -> Output:
        """Wait for a decode: all B slots' tokens, or logits [B, V]; rows of idle slots have no meaning."""
        if handle.events:
            import ttnn

            for event in handle.events:
                ttnn.event_synchronize(event)
        out = handle.out
        if not _on_host(out) and hasattr(self._adapter, "process_decode_output_host"):
            out = self._adapter.process_decode_output_host(out, is_tokens=handle.sampling is not None)
        return self._parse(out, "decode_forward", handle.rows, handle.sampling)

    def release(self, slots: tuple[int, ...]) -> None:
        """Tell an adapter that keeps state by slot which slots their requests have given up."""
        if slots and self._release is not None:
            self._release(list(slots))

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
            enable_trace=trace_prefill, kv_cache=self._kv_cache, can_sample_on_device=self._sample_on_device
        )
        log.info("Warming up decode: %d rows, %s", rows, how[trace_decode])
        self._adapter.warmup_model_decode(
            enable_trace=trace_decode,
            kv_cache=self._kv_cache,
            can_sample_on_device=self._sample_on_device,
            max_batch_size=rows,
            num_blocks=pages_per_row,
        )

    def _pages(self, tables: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        """The page table, and each layer's where they differ."""
        if (groups := self._traits.groups) is None:
            return {"page_table": tables[0]}
        return {"page_table": tables[groups.main], "page_tables_per_layer": groups.per_layer(tables)}

    def _rope_deltas(self, inputs: DecodeInput) -> dict[str, Any]:
        if not self._traits.request_rope:
            return {}
        assert inputs.rope_deltas is not None
        return {"rope_deltas_all_users": inputs.rope_deltas.tolist()}

    def _commands(self, reload: Reload, sampling: DeviceSampling | None) -> dict[str, Any]:
        words = {} if sampling is None else sampling.keywords()
        if self.explicit_reloads:
            return words | reload.keywords()
        return words | ({} if sampling is None else {"reset_batch": reload.inputs})

    def _parse(self, out: Any, method: str, rows: int, sampling: DeviceSampling | None) -> Output:
        where = self._named(method)
        return parse_logits(out, where, rows) if sampling is None else parse_tokens(out, where, rows, sampling)

    def _named(self, method: str) -> str:
        return f"{type(self._adapter).__name__}.{method}()"


def _on_host(out: Any) -> bool:
    first = out[0] if isinstance(out, tuple) and out else out
    return isinstance(first, torch.Tensor)
