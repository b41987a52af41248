"""Drives a loaded adapter as the worker does: the same calls, shapes and page tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_tt.batch.step_input import DecodeInput, PrefillInput
from vllm_tt.contract import DeviceSamplingParams
from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.contract import Capabilities

__all__ = ["BadReturn", "Chunk", "Rig", "Sizes", "Token"]


class BadReturn(TTError):
    """{method}() must return {expected}, got {found}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of the batch and of the KV cache."""

    slots: int
    page_size: int
    pages: int
    """Including the null page."""
    max_seq_len: int
    vocab_size: int
    kv_shape: tuple[int, int, int, int]
    """(pages, KV heads of a chip, page size, head size)."""
    layers: int

    @property
    def width(self) -> int:
        """Pages of the longest request."""
        return -(-self.max_seq_len // self.page_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Tokens ``start`` to ``end`` of one row's ``tokens``, to be prefilled."""

    slot: int
    tokens: Sequence[int]
    start: int
    end: int
    pages: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """One row's next token, to be decoded."""

    slot: int
    token: int
    position: int
    pages: Sequence[int]


class Rig:
    """An adapter with its KV cache."""

    def __init__(self, adapter: Any, kv_cache: Any, sizes: Sizes, capabilities: Capabilities) -> None:
        self.adapter = adapter
        self.kv_cache = kv_cache
        self.sizes = sizes
        self.capabilities = capabilities

    def warm_up(self, *, trace: bool) -> None:
        sampled = self.capabilities.supports_sample_on_device
        self.adapter.already_warmed_up_prefill = False
        self.adapter.warmup_model_prefill(enable_trace=trace, kv_cache=self.kv_cache, can_sample_on_device=sampled)
        self.adapter.warmup_model_decode(
            enable_trace=trace,
            kv_cache=self.kv_cache,
            can_sample_on_device=sampled,
            max_batch_size=self.sizes.slots,
            num_blocks=self.sizes.width,
        )

    def prefill(self, chunks: Sequence[Chunk], *, sampled: bool = False) -> torch.Tensor:
        """Logits [n, V] of each chunk's last token, or with ``sampled`` tokens [n]."""
        inputs = self._prefill_input(chunks)
        more = {"sampling_params": DeviceSamplingParams.greedy(len(chunks))} if sampled else {}
        out = self.adapter.prefill_forward(
            tokens=inputs.tokens,
            page_table=inputs.page_table,
            kv_cache=self.kv_cache,
            enable_trace=False,
            prompt_lens=inputs.prompt_lens,
            start_pos=inputs.start_pos,
            empty_slots=inputs.empty_slots,
            **more,
        )
        return self._result(out, "prefill_forward", len(chunks), sampled)

    def decode(
        self, rows: Sequence[Token], *, sampled: bool = False, split: bool = False, goes_on: bool = False
    ) -> torch.Tensor:
        """Logits [B, V] by slot, or with ``sampled`` tokens [B].

        split: submit, read back and process separately; goes_on: the device holds tokens and positions.
        """
        inputs = self._decode_input(rows)
        out = self.adapter.decode_forward(
            tokens=inputs.tokens,
            page_table=inputs.page_table,
            kv_cache=self.kv_cache,
            start_pos=inputs.start_pos,
            enable_trace=False,
            read_from_device=not split,
            **self._commands(sampled, goes_on),
        )
        if split and not _on_host(out):
            out = self._read_back(out)
        if not _on_host(out) and hasattr(self.adapter, "process_decode_output_host"):
            out = self.adapter.process_decode_output_host(out, is_tokens=sampled)
        return self._result(out, "decode_forward", self.sizes.slots, sampled)

    def _read_back(self, out: Any) -> Any:
        import ttnn

        found = self.adapter.read_decode_output(out, async_read=True)
        if not isinstance(found, tuple) or len(found) != 2:
            expected = "a pair of outputs and events"
            raise BadReturn(method="read_decode_output", expected=expected, found=_shown(found))
        out, events = found
        for event in events if isinstance(events, (list, tuple)) else [events]:
            ttnn.event_synchronize(event)
        return out

    def _prefill_input(self, chunks: Sequence[Chunk]) -> PrefillInput:
        tokens = np.zeros((len(chunks), max(chunk.end for chunk in chunks)), dtype=np.int32)
        for i, chunk in enumerate(chunks):
            tokens[i, : chunk.end] = chunk.tokens[: chunk.end]
        return PrefillInput(
            tokens=torch.from_numpy(tokens),
            page_table=self._tables([(i, chunk.pages, chunk.end) for i, chunk in enumerate(chunks)], len(chunks)),
            prompt_lens=np.array([chunk.end for chunk in chunks], dtype=np.int64),
            start_pos=np.array([chunk.start for chunk in chunks], dtype=np.int64),
            empty_slots=[chunk.slot for chunk in chunks],
        )

    def _decode_input(self, rows: Sequence[Token]) -> DecodeInput:
        tokens = np.zeros((self.sizes.slots, 1), dtype=np.int32)
        start_pos = np.full(self.sizes.slots, -1, dtype=np.int32)
        for row in rows:
            tokens[row.slot], start_pos[row.slot] = row.token, row.position
        return DecodeInput(
            tokens=torch.from_numpy(tokens),
            page_table=self._tables([(row.slot, row.pages, row.position + 1) for row in rows], self.sizes.slots),
            start_pos=torch.from_numpy(start_pos),
        )

    def _tables(self, rows: Sequence[tuple[int, Sequence[int], int]], count: int) -> torch.Tensor:
        """Each row's pages as far as it is long; the null page behind them."""
        table = np.zeros((count, self.sizes.width), dtype=np.int32)
        for index, pages, length in rows:
            held = -(-length // self.sizes.page_size)
            table[index, :held] = pages[:held]
        return torch.from_numpy(table)

    def _commands(self, sampled: bool, goes_on: bool) -> dict[str, Any]:
        commands: dict[str, Any] = {"sampling_params": DeviceSamplingParams.greedy(self.sizes.slots)} if sampled else {}
        if getattr(self.adapter, "decode_input_update_contract", None) == 1:
            return commands | {
                "reload_inputs": not goes_on,
                "reload_page_table": False,
                "reload_sampling_params": sampled and not goes_on,
                "reset_sampling_state": False,
            }
        return commands | ({"reset_batch": not goes_on} if sampled else {})

    def _result(self, out: Any, method: str, rows: int, sampled: bool) -> torch.Tensor:
        if isinstance(out, tuple) and out:
            out = out[0]
        vocab = self.sizes.vocab_size
        if sampled:
            if isinstance(out, torch.Tensor) and out.numel() == rows and out.shape[0] == rows:
                return out.reshape(rows).long()
            raise BadReturn(method=method, expected=f"tokens [{rows}] or [{rows}, 1]", found=_shown(out))
        fits = isinstance(out, torch.Tensor) and out.dim() == 3 and out.shape[0] == rows and out.shape[2] >= vocab
        if not fits:
            expected = f"host logits [{rows}, 1, {vocab}] or [{rows}, tokens, {vocab}]"
            raise BadReturn(method=method, expected=expected, found=_shown(out))
        return out[:, -1, :vocab].detach().float().clone()


def _on_host(out: Any) -> bool:
    first = out[0] if isinstance(out, tuple) and out else out
    return isinstance(first, torch.Tensor)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return f"a {type(value).__name__}" if value is not None else "None"
