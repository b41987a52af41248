"""Adapters that are wrong in one way each, as mixins for the reference adapter, with the rows that must say so."""

import torch


class DecodesOnePositionEarly:
    def decode_forward(self, *, start_pos, **kwargs):
        return super().decode_forward(start_pos=torch.where(start_pos > 0, start_pos - 1, start_pos), **kwargs)


class ChunksForgetWhatWasBefore:
    def prefill_forward(self, *, tokens, start_pos, prompt_lens, page_table, kv_cache, **kwargs):
        size = kv_cache[0].page_size
        rows = [tokens[i, s:e] for i, (s, e) in enumerate(zip(start_pos, prompt_lens, strict=True))]
        tables = [torch.roll(page_table[i], -int(s) // size) for i, s in enumerate(start_pos)]
        return super().prefill_forward(
            tokens=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
            start_pos=start_pos * 0,
            prompt_lens=prompt_lens - start_pos,
            page_table=torch.stack(tables),
            kv_cache=kv_cache,
            **kwargs,
        )


class AnswersInTheOrderOfRows:
    """Logits of live rows come first, whatever their slots."""

    def decode_forward(self, *, start_pos, **kwargs):
        out = super().decode_forward(start_pos=start_pos, **kwargs)
        live = start_pos >= 0
        return torch.cat([out[live], out[~live]]) if isinstance(out, torch.Tensor) else out


class PrefillsTheLastRowFirst:
    """A row then reads pages that an earlier row of the same call has yet to write."""

    def prefill_forward(self, *, tokens, page_table, prompt_lens, start_pos, empty_slots, **kwargs):
        out = []
        for row in reversed(range(len(empty_slots))):
            one = slice(row, row + 1)
            logits = super().prefill_forward(
                tokens=tokens[one],
                page_table=page_table[one],
                prompt_lens=prompt_lens[one],
                start_pos=start_pos[one],
                empty_slots=empty_slots[one],
                **kwargs,
            )
            out.insert(0, logits[:, -1:])
        return torch.cat(out)


class TakesPagesToFollowOneAnother:
    def decode_forward(self, *, page_table, start_pos, **kwargs):
        straight = page_table[:, :1] + torch.arange(page_table.shape[1], dtype=torch.int32)
        return super().decode_forward(page_table=straight % 33, start_pos=start_pos, **kwargs)


class PrefillsTheNextPageToo:
    def prefill_forward(self, *, page_table, kv_cache, **kwargs):
        out = super().prefill_forward(page_table=page_table, kv_cache=kv_cache, **kwargs)
        kv_cache[0].keys[(int(page_table[0, 0]) + 1) % 33] = 3.0
        return out


class DecodesIdleSlotsToo:
    """It remembers each slot's pages, and clamps position -1 to 0."""

    def prefill_forward(self, *, page_table, empty_slots, **kwargs):
        self.tables = getattr(self, "tables", {}) | dict(zip(empty_slots, page_table, strict=True))
        return super().prefill_forward(page_table=page_table, empty_slots=empty_slots, **kwargs)

    def decode_forward(self, *, page_table, start_pos, kv_cache, **kwargs):
        for slot in (start_pos < 0).nonzero().flatten().tolist():
            if slot in self.tables:
                kv_cache[0].keys[int(self.tables[slot][0]), :, 0] = 1.0
        return super().decode_forward(page_table=page_table, start_pos=start_pos, kv_cache=kv_cache, **kwargs)


class ReadsBackTheStepBefore:
    before = None

    def read_decode_output(self, out, async_read=True):
        late, self.before = self.before or out, out
        return super().read_decode_output(late)


class ReadsBackWithoutEvents:
    def read_decode_output(self, out, async_read=True):
        return super().read_decode_output(out)[0]


class LeavesOutADimension:
    def decode_forward(self, **kwargs):
        out = super().decode_forward(**kwargs)
        return out[:, 0] if isinstance(out, torch.Tensor) and out.dim() == 3 else out


class CannotDoOneToken:
    def prefill_forward(self, *, prompt_lens, **kwargs):
        if 1 in prompt_lens:
            raise ValueError("a prompt of one token")
        return super().prefill_forward(prompt_lens=prompt_lens, **kwargs)


class GivesNotANumber:
    def decode_forward(self, **kwargs):
        out = super().decode_forward(**kwargs)
        return out * float("nan") if isinstance(out, torch.Tensor) and out.is_floating_point() else out


class LanesShareOneCache:
    def pages_of_lanes(self, page_table, slots, kv_cache):
        return page_table


class TakesRowsForSlots:
    """In a prefill, whose rows are of any lanes."""

    def prefill_forward(self, *, empty_slots, **kwargs):
        return super().prefill_forward(empty_slots=list(range(len(empty_slots))), **kwargs)


class LeavesOutEmptyLanes:
    """Logits of lanes with a live row come first."""

    def decode_forward(self, *, start_pos, **kwargs):
        out = super().decode_forward(start_pos=start_pos, **kwargs)
        busy = (start_pos.view(self.lanes, -1) >= 0).any(dim=1).repeat_interleave(self.rows_per_lane)
        return torch.cat([out[busy], out[~busy]]) if isinstance(out, torch.Tensor) else out


BREAKAGES = {
    DecodesOnePositionEarly: ("prefill-decode", "1 token in slot 0, 1 decode step"),
    ChunksForgetWhatWasBefore: ("chunks", None),
    PrefillsTheLastRowFirst: ("prefix-caching", None),
    AnswersInTheOrderOfRows: ("row-alone", "1 token in slot 2, 1 decode step"),
    TakesPagesToFollowOneAnother: ("row-alone", None),
    PrefillsTheNextPageToo: ("foreign-pages", "9 tokens in slot 0 and 1 token in slot 1"),
    DecodesIdleSlotsToo: ("idle-rows", "1 token in slot 0 and 1 token in slot 1, 1 decode step"),
    ReadsBackTheStepBefore: ("async-split", None),
    ReadsBackWithoutEvents: ("async-split", "1 token in slot 0, 1 decode step"),
    LeavesOutADimension: ("prefill-decode", "1 token in slot 0, 1 decode step"),
    CannotDoOneToken: ("prefill-decode", "1 token in slot 0"),
    GivesNotANumber: ("prefill-decode", "1 token in slot 0, 1 decode step"),
}
"""Each with the row that must fail, and the smallest case where it is known."""

LANE_BREAKAGES = {
    LanesShareOneCache: "1 token in slot 0 and 1 token in slot 3",
    TakesRowsForSlots: "1 token in slot 3, 1 decode step",
    LeavesOutEmptyLanes: "1 token in slot 3, 1 decode step",
}
"""Each with the smallest case of the lanes' row."""
