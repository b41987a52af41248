"""Drives a loaded adapter as the worker does: the same calls, shapes and page tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_tt.batch.step_input import DecodeInput, PrefillInput
from vllm_tt.conformance.layers import Pool, Span
from vllm_tt.conformance.sampled import Answer, Ask, BadReturn, shown
from vllm_tt.worker.outputs import parse_rope_deltas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_tt.contract import Capabilities

__all__ = ["Chunk", "Rig", "Sizes", "Submitted", "Token"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of the batch and of the KV cache."""

    slots: int
    """Of all lanes."""
    page_size: int
    pages: int
    """Of each lane, including the null page."""
    max_seq_len: int
    vocab_size: int
    kv_shape: tuple[int, int, int, int]
    """(pages, KV heads of a chip, page size, head size)."""
    layers: int
    lanes: int = 1
    window: int | None = None
    """Tokens that layers look back over, where they do not all see every token; the shortest, if there are several."""
    request_rope: bool = False
    """Rotary positions differ from request to request."""

    @property
    def slots_per_lane(self) -> int:
        return self.slots // self.lanes

    def lane_of(self, slot: int) -> int:
        return slot // self.slots_per_lane

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
    late: bool = False
    """The host is a step behind: it sends the position before."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Submitted:
    """A decode whose output is on the device still."""

    out: Any
    ask: Ask | None
    events: Sequence[Any] = ()


class Rig:
    """An adapter with its KV cache."""

    def __init__(
        self, adapter: Any, kv_cache: Any, sizes: Sizes, capabilities: Capabilities, pool: Pool | None = None
    ) -> None:
        self.adapter = adapter
        self.kv_cache = kv_cache
        self.sizes = sizes
        self.capabilities = capabilities
        self.pool = pool or Pool(page_size=sizes.page_size, max_seq_len=sizes.max_seq_len)
        self.behind: int | None = None
        """What page tables have behind windows: a page, 0 for the null page; None leaves a row's own there."""
        self._tables_sent: tuple[torch.Tensor, ...] | None = None
        """The page tables that the device was sent last."""
        self._rope_deltas = [0] * sizes.slots
        self._taken: set[int] = set()
        """Slots whose state is a request's."""

    @property
    def takes_commands(self) -> bool:
        """Whether decode is told command by command what to load again."""
        return getattr(self.adapter, "decode_input_update_contract", None) == 1

    def can_go_on(self, rows: Sequence[Token]) -> bool:
        """Whether a decode of ``rows`` need not load everything: without commands, new pages come with all else."""
        return self.takes_commands or self._same_tables(self._decode_input(rows).page_tables)

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

    def prefill(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Logits [n, V] of each chunk's last token."""
        return self._logits(self._prefill(chunks, {}), "prefill_forward", len(chunks))

    def sample_prefill(self, chunks: Sequence[Chunk], ask: Ask) -> Answer:
        """Each chunk's next token."""
        words = {name: value for name, value in ask.keywords().items() if name in ("sampling_params", "logits_rows")}
        return Answer.of(self._prefill(chunks, words), "prefill_forward", ask, self.sizes.vocab_size)

    def decode(self, rows: Sequence[Token], *, split: bool = False) -> torch.Tensor:
        """Logits [B, V] by slot; ``split`` submits, reads back and processes separately."""
        return self._logits(self._finished(self._submit(rows, None, False, split)), "decode_forward", self.sizes.slots)

    def sample(self, rows: Sequence[Token], ask: Ask, *, goes_on: bool = False, split: bool = False) -> Answer:
        """Every slot's next token; with ``goes_on`` the device holds tokens, positions and parameters."""
        return self.finish(self.submit(rows, ask, goes_on=goes_on, split=split))

    def submit(self, rows: Sequence[Token], ask: Ask, *, goes_on: bool = False, split: bool = True) -> Submitted:
        """A decode that `finish` reads; without ``split`` the adapter reads it at once."""
        return self._submit(rows, ask, goes_on, split)

    def finish(self, submitted: Submitted) -> Answer:
        """Every slot's next token."""
        assert submitted.ask is not None
        out = self._finished(submitted)
        return Answer.of(out, "decode_forward", submitted.ask, self.sizes.vocab_size)

    def _prefill(self, chunks: Sequence[Chunk], words: Mapping[str, Any]) -> Any:
        inputs = self._prefill_input(chunks)
        self._release([chunk.slot for chunk in chunks if chunk.start == 0])
        out = self.adapter.prefill_forward(
            tokens=inputs.tokens,
            **self.pool.per_call(inputs.page_tables),
            kv_cache=self.kv_cache,
            enable_trace=False,
            prompt_lens=inputs.prompt_lens,
            start_pos=inputs.start_pos,
            empty_slots=inputs.empty_slots,
            **words,
        )
        if self.sizes.request_rope:
            out, deltas = parse_rope_deltas(out, "prefill_forward()", len(chunks))
            for chunk, delta in zip(chunks, deltas.tolist(), strict=True):
                self._rope_deltas[chunk.slot] = delta
        return out

    def _submit(self, rows: Sequence[Token], ask: Ask | None, goes_on: bool, split: bool) -> Submitted:
        inputs = self._decode_input(rows)
        commands = self._commands(ask is not None, goes_on, inputs.page_tables)
        out = self.adapter.decode_forward(
            tokens=inputs.tokens,
            **self.pool.per_call(inputs.page_tables),
            kv_cache=self.kv_cache,
            start_pos=inputs.start_pos,
            enable_trace=False,
            read_from_device=not split,
            **({"rope_deltas_all_users": list(self._rope_deltas)} if self.sizes.request_rope else {}),
            **commands,
            **(ask.keywords() if ask else {}),
        )
        if not split or _on_host(out):
            return Submitted(out=out, ask=ask)
        found = self.adapter.read_decode_output(out, async_read=True)
        if not isinstance(found, tuple) or len(found) != 2:
            expected = "a pair of outputs and events"
            raise BadReturn(method="read_decode_output", expected=expected, found=shown(found))
        out, events = found
        return Submitted(out=out, ask=ask, events=events if isinstance(events, (list, tuple)) else [events])

    def _finished(self, submitted: Submitted) -> Any:
        if submitted.events:
            import ttnn

            for event in submitted.events:
                ttnn.event_synchronize(event)
        out = submitted.out
        if not _on_host(out) and hasattr(self.adapter, "process_decode_output_host"):
            out = self.adapter.process_decode_output_host(out, is_tokens=submitted.ask is not None)
        return out

    def _prefill_input(self, chunks: Sequence[Chunk]) -> PrefillInput:
        tokens = np.zeros((len(chunks), max(chunk.end for chunk in chunks)), dtype=np.int32)
        for i, chunk in enumerate(chunks):
            tokens[i, : chunk.end] = chunk.tokens[: chunk.end]
        return PrefillInput(
            tokens=torch.from_numpy(tokens),
            page_tables=self.pool.tables(
                [Span(index=i, pages=one.pages, start=one.start, end=one.end) for i, one in enumerate(chunks)],
                len(chunks),
                self.behind,
            ),
            prompt_lens=np.array([chunk.end for chunk in chunks], dtype=np.int64),
            start_pos=np.array([chunk.start for chunk in chunks], dtype=np.int64),
            empty_slots=[chunk.slot for chunk in chunks],
        )

    def _decode_input(self, rows: Sequence[Token]) -> DecodeInput:
        tokens = np.zeros((self.sizes.slots, 1), dtype=np.int32)
        start_pos = np.full(self.sizes.slots, -1, dtype=np.int32)
        for row in rows:
            tokens[row.slot], start_pos[row.slot] = row.token, row.position - row.late
        return DecodeInput(
            tokens=torch.from_numpy(tokens),
            page_tables=self.pool.tables(
                [Span(index=row.slot, pages=row.pages, start=row.position, end=row.position + 1) for row in rows],
                self.sizes.slots,
                self.behind,
            ),
            start_pos=torch.from_numpy(start_pos),
        )

    def _release(self, slots: Sequence[int]) -> None:
        """Requests begin in ``slots``: what was there before has given them up."""
        given_up = sorted(self._taken.intersection(slots))
        self._taken.update(slots)
        if given_up and hasattr(self.adapter, "release_slots"):
            self.adapter.release_slots(given_up)

    def _same_tables(self, tables: tuple[torch.Tensor, ...]) -> bool:
        """Whether the device has got ``tables`` already."""
        before = self._tables_sent
        return before is not None and all(map(torch.equal, before, tables))

    def _commands(self, sampled: bool, goes_on: bool, tables: tuple[torch.Tensor, ...]) -> dict[str, bool]:
        changed, self._tables_sent = not self._same_tables(tables), tables
        if self.takes_commands:
            return {
                "reload_inputs": not goes_on,
                "reload_page_table": goes_on and changed,
                "reload_sampling_params": sampled and not goes_on,
                "reset_sampling_state": sampled and not goes_on,
            }
        return {"reset_batch": not goes_on} if sampled else {}

    def _logits(self, out: Any, method: str, rows: int) -> torch.Tensor:
        if isinstance(out, tuple) and out:
            out = out[0]
        vocab = self.sizes.vocab_size
        fits = isinstance(out, torch.Tensor) and out.dim() == 3 and out.shape[0] == rows and out.shape[2] >= vocab
        if not fits:
            expected = f"host logits [{rows}, 1, {vocab}] or [{rows}, tokens, {vocab}]"
            raise BadReturn(method=method, expected=expected, found=shown(out))
        return out[:, -1, :vocab].detach().float().clone()


def _on_host(out: Any) -> bool:
    first = out[0] if isinstance(out, tuple) and out else out
    return isinstance(first, torch.Tensor)
