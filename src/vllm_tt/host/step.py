"""One step's tokens, flat, with where each is written and what each may see.

The model computes a flat batch of tokens [t]; only `attend` knows which belong together. Prompts are
attended row by row at their true length, decoding rows in one call for each size class.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """The tokens that logits are wanted for: one a row."""

    def attend(self, queries: torch.Tensor, cache: PagedKV) -> torch.Tensor:
        """Attention of ``queries`` [t, heads, head size] over their sequences' pages, of the same shape."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Prompt:
    start: int
    end: int
    rows: slice
    pages: torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PrefillStep(Step):
    """Prompts, or chunks of prompts whose earlier tokens are in the cache already."""

    prompts: tuple[_Prompt, ...]

    @classmethod
    def build(
        cls,
        tokens: torch.Tensor,
        page_table: torch.Tensor,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        page_size: int,
    ) -> PrefillStep:
        """From the contract's ``prefill_forward``: row i computes ``tokens[i, starts[i]:ends[i]]``."""
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
            prompts=tuple(
                _Prompt(
                    start=start,
                    end=end,
                    rows=slice(int(bound) - (end - start), int(bound)),
                    pages=page_table[i, : -(-end // page_size)].long(),
                    mask=_causal(start, end) if start else None,
                )
                for i, ((start, end), bound) in enumerate(zip(spans, bounds, strict=True))
            ),
        )

    def attend(self, queries: torch.Tensor, cache: PagedKV) -> torch.Tensor:
        out = torch.empty_like(queries)
        for prompt in self.prompts:
            keys, values = cache.read(prompt.pages[None])
            attended = scaled_dot_product_attention(
                queries[prompt.rows].transpose(0, 1)[None],
                keys[:, :, : prompt.end],
                values[:, :, : prompt.end],
                attn_mask=prompt.mask,
                is_causal=prompt.mask is None,
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

    live: torch.Tensor
    """The slot of each token [t]."""
    classes: tuple[_SizeClass, ...]

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
            live=live,
            classes=_size_classes(table, positions, page_size),
        )

    def attend(self, queries: torch.Tensor, cache: PagedKV) -> torch.Tensor:
        out = torch.empty_like(queries)
        for group in self.classes:
            keys, values = cache.read(group.pages, group.scratch)
            rows, kv_heads, _, size = keys.shape
            # The query heads that share a KV head take the place of a sequence of queries.
            shared = queries[group.rows].view(rows, kv_heads, -1, size)
            attended = scaled_dot_product_attention(shared, keys, values, attn_mask=group.mask)
            out[group.rows] = attended.reshape(rows, -1, size)
        return out


def _causal(start: int, end: int) -> torch.Tensor:
    """Which of positions [end] each of positions start to end may see."""
    return torch.arange(end) <= torch.arange(start, end)[:, None]


def _size_classes(table: torch.Tensor, positions: torch.Tensor, page_size: int) -> tuple[_SizeClass, ...]:
    """Rows of similar length together: a long row does not make the short ones read its width."""
    if not len(positions):
        return ()
    pages = positions // page_size + 1
    powers = torch.log2(pages.double()).ceil().long()
    classes = []
    for power in powers.unique().tolist():
        rows = (powers == power).nonzero().flatten()
        width = int(pages[rows].max())
        seen = torch.arange(width * page_size) <= positions[rows, None]
        classes.append(_SizeClass(rows=rows, pages=table[rows, :width], mask=seen[:, None, None], scratch=[]))
    return tuple(classes)
