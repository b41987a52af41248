"""One step's tokens, flat, with where each is written and what each may see.

The model computes a flat batch of tokens [t]; only `attend` knows which belong together. Prompts are
attended row by row at their true length, decoding rows in one call for each size class. A layer with a
window reads the pages that its window touches, and no others: those behind may be another request's by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vllm_tt.host.kv_cache import PagedKV

__all__ = ["DecodeStep", "PrefillStep", "Step"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
    """What the model's layers need of a step."""

    tokens: torch.Tensor
    """The tokens to compute, int64 [t]."""
    positions: torch.Tensor
    """Their positions [t]."""
    lengths: torch.Tensor
    """How long each token's sequence is after this step [t]."""
    cells: tuple[torch.Tensor, torch.Tensor]
    """Page and offset of each token in the KV cache."""
    last: torch.Tensor
    """The last token of each row [rows], which logits are wanted for; a row's tokens follow one another."""
    slots: torch.Tensor
    """The device slot of each row, int64 [rows]."""
    layers: tuple[Step, ...] = ()
    """Where layers have page tables of their own: for each layer this step with its table."""

    def of_layer(self, layer: int) -> Step:
        """The same step with the page table of ``layer``."""
        return self.layers[layer] if self.layers else self

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, *, scale: float | None = None, window: int | None = None
    ) -> torch.Tensor:
        """Attention of ``queries`` [t, heads, head size] over their sequences' pages, of the same shape.

        ``scale``: of the scores, one over the root of the head size if not given. ``window``: how many tokens each
        may see, itself among them; all that came before it if not given.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Prompt:
    start: int
    end: int
    rows: slice
    pages: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _PromptView:
    pages: torch.Tensor
    keys: slice
    """Those of the pages' cells that some token of the prompt sees."""
    mask: torch.Tensor | None
    """Which of them each token sees; None where that is what came before it in this step."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PrefillStep(Step):
    """Prompts, or chunks of prompts whose earlier tokens are in the cache already."""

    page_size: int
    prompts: tuple[_Prompt, ...]
    views: dict[int | None, list[_PromptView]] = field(default_factory=dict)
    """What each prompt sees, for each window that layers have asked for."""

    @classmethod
    def build(
        cls,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        page_size: int,
        slots: torch.Tensor,
    ) -> PrefillStep:
        """From the contract's ``prefill_forward``: row i, in ``slots[i]``, is ``tokens[i, starts[i]:ends[i]]``."""
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        positions = [torch.arange(start, end) for start, end in spans]
        pages = [page_table[i].long()[places // page_size] for i, places in enumerate(positions)]
        counts = torch.tensor([end - start for start, end in spans])
        bounds = counts.cumsum(0)
        flat = torch.cat(positions)
        return cls(
            tokens=torch.cat([tokens[i, start:end].long() for i, (start, end) in enumerate(spans)]),
            positions=flat,
            lengths=torch.from_numpy(ends).repeat_interleave(counts),
            cells=(torch.cat(pages), flat % page_size),
            last=bounds - 1,
            slots=slots,
            page_size=page_size,
            prompts=tuple(
                _Prompt(
                    start=start,
                    end=end,
                    rows=slice(int(bound) - (end - start), int(bound)),
                    pages=page_table[i, : -(-end // page_size)].long(),
                )
                for i, ((start, end), bound) in enumerate(zip(spans, bounds, strict=True))
            ),
        )

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, *, scale: float | None = None, window: int | None = None
    ) -> torch.Tensor:
        if window not in self.views:
            self.views[window] = [_prompt_view(prompt, self.page_size, window) for prompt in self.prompts]
        out = torch.empty_like(queries)
        for prompt, view in zip(self.prompts, self.views[window], strict=True):
            keys, values = cache.read(view.pages[None])
            attended = scaled_dot_product_attention(
                queries[prompt.rows].transpose(0, 1)[None],
                keys[:, :, view.keys],
                values[:, :, view.keys],
                attn_mask=view.mask,
                is_causal=view.mask is None,
                scale=scale,
                enable_gqa=True,
            )
            out[prompt.rows] = attended[0].transpose(0, 1)
        return out


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _SizeClass:
    rows: torch.Tensor
    pages: torch.Tensor
    mask: torch.Tensor
    scratch: list[torch.Tensor]
    """What each layer reads into: fresh memory for every layer would cost more than the copy."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodeStep(Step):
    """One token for each decoding slot; idle slots are left out, so they cost nothing and write nothing."""

    page_size: int
    page_table: torch.Tensor
    """Of the live slots [t, W]."""
    classes: dict[int | None, list[_SizeClass]] = field(default_factory=dict)
    """The rows by what they see, for each window that layers have asked for."""

    @classmethod
    def build(
        cls, tokens: torch.Tensor, page_table: torch.Tensor, start_pos: torch.Tensor, page_size: int
    ) -> DecodeStep:
        """From the contract's ``decode_forward``: ``start_pos`` is -1 for idle slots."""
        live = (start_pos >= 0).nonzero().flatten()
        positions = start_pos[live].long()
        table = page_table[live].long()
        rows = torch.arange(len(live))
        return cls(
            tokens=tokens[live, 0].long(),
            positions=positions,
            lengths=positions + 1,
            cells=(table[rows, positions // page_size], positions % page_size),
            last=rows,
            slots=live,
            page_size=page_size,
            page_table=table,
        )

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, *, scale: float | None = None, window: int | None = None
    ) -> torch.Tensor:
        if window not in self.classes:
            self.classes[window] = _size_classes(self.page_table, self.positions, self.page_size, window)
        out = torch.empty_like(queries)
        for group in self.classes[window]:
            keys, values = cache.read(group.pages, group.scratch)
            rows, kv_heads, _, size = keys.shape
            # The query heads that share a KV head take the place of a sequence of queries.
            shared = queries[group.rows].view(rows, kv_heads, -1, size)
            attended = scaled_dot_product_attention(shared, keys, values, attn_mask=group.mask, scale=scale)
            out[group.rows] = attended.reshape(rows, -1, size)
        return out


def _prompt_view(prompt: _Prompt, page_size: int, window: int | None) -> _PromptView:
    first = 0 if window is None else max(prompt.start + 1 - window, 0)
    keys, queries = torch.arange(first, prompt.end), torch.arange(prompt.start, prompt.end)[:, None]
    mask = None
    if window is not None and window < prompt.end:
        mask = (keys <= queries) & (keys > queries - window)
    elif prompt.start:
        mask = keys <= queries
    skipped = first // page_size
    inside = slice(first - skipped * page_size, prompt.end - skipped * page_size)
    return _PromptView(pages=prompt.pages[skipped:], keys=inside, mask=mask)


def _size_classes(table: torch.Tensor, positions: torch.Tensor, page_size: int, window: int | None) -> list[_SizeClass]:
    """Rows that see similarly much together: a long row does not make the short ones read its width."""
    if not len(positions):
        return []
    firsts = torch.zeros_like(positions) if window is None else (positions + 1 - window).clamp(min=0)
    skipped = firsts // page_size
    pages = positions // page_size + 1 - skipped
    powers = torch.log2(pages.double()).ceil().long()
    classes = []
    for power in powers.unique().tolist():
        rows = (powers == power).nonzero().flatten()
        width = int(pages[rows].max())
        # Past a row's last page any page will do: nothing there is seen.
        places = (skipped[rows, None] + torch.arange(width)).clamp(max=table.shape[1] - 1)
        cells = skipped[rows, None] * page_size + torch.arange(width * page_size)
        seen = (cells >= firsts[rows, None]) & (cells <= positions[rows, None])
        classes.append(_SizeClass(rows=rows, pages=table[rows[:, None], places], mask=seen[:, None, None], scratch=[]))
    return classes
