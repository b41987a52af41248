"""An adapter with state by slot, and adapters that are wrong about windows or state, with the rows that must say so."""

from typing import ClassVar

import torch


class Remembers:
    """Turns the vocabulary by the sum of all tokens so far, which it keeps for each slot."""

    model_capabilities: ClassVar[dict] = {"supports_chunked_prefill": True}

    def allocate_kv_cache(self, shape, dtype, num_layers):
        self.sums = torch.zeros(self.lanes * self.rows_per_lane, dtype=torch.int64)
        return super().allocate_kv_cache(shape, dtype, num_layers)

    def prefill_forward(self, *, tokens, start_pos, prompt_lens, empty_slots, **kwargs):
        inputs = {"tokens": tokens, "start_pos": start_pos, "prompt_lens": prompt_lens, "empty_slots": empty_slots}
        logits = super().prefill_forward(**inputs, **kwargs)
        for row, slot in enumerate(self.slots_of(empty_slots)):
            start, end = int(start_pos[row]), int(prompt_lens[row])
            self.sums[slot] = self.before(slot, start) + tokens[row, start:end].sum()
            logits[row] = logits[row].roll(int(self.sums[slot]), -1)
        return logits

    def decode_forward(self, *, tokens, start_pos, **kwargs):
        logits = super().decode_forward(tokens=tokens, start_pos=start_pos, **kwargs)
        for slot in range(len(tokens)):
            self.sums[slot] += self.decoded(tokens[slot, 0], start_pos[slot])
            logits[slot] = logits[slot].roll(int(self.sums[slot]), -1)
        return logits

    def slots_of(self, empty_slots):
        return empty_slots

    def before(self, slot, start):
        return self.sums[slot] if start else 0

    def decoded(self, token, position):
        return token if position >= 0 else 0


class KeepsTheStateOfTheRequestBefore(Remembers):
    def before(self, slot, start):
        return self.sums[slot]


class ChangesTheStateOfIdleSlots(Remembers):
    def decoded(self, token, position):
        return token if position >= 0 else 1


class KeepsStateByRow(Remembers):
    def slots_of(self, empty_slots):
        return range(len(empty_slots))


class ForgetsBetweenChunks(Remembers):
    def before(self, slot, start):
        return 0


STATE_BREAKAGES = {
    KeepsTheStateOfTheRequestBefore: "slots",
    ChangesTheStateOfIdleSlots: "slots",
    KeepsStateByRow: "slots",
    ForgetsBetweenChunks: "chunks",
}


class LooksBehindItsWindows:
    @classmethod
    def build_model(cls, hf_config):
        model = super().build_model(hf_config)
        for layer in model.model.layers:
            layer.self_attn.window = None
        return model


class WritesBehindItsWindows:
    """Where the window of 20 tokens has left the first page of 8, it writes there."""

    def prefill_forward(self, *, page_tables_per_layer, start_pos, kv_cache, **kwargs):
        for layer, table, cache in zip(self.model.model.layers, page_tables_per_layer, kv_cache, strict=True):
            if layer.self_attn.window is not None:
                cache.keys[table[start_pos >= 27, 0].long()] += 1.0
        inputs = {"page_tables_per_layer": page_tables_per_layer, "start_pos": start_pos, "kv_cache": kv_cache}
        return super().prefill_forward(**inputs, **kwargs)


class TakesOneTableForAllLayers:
    def prefill_forward(self, *, page_table, page_tables_per_layer, **kwargs):
        tables = [page_table] * len(page_tables_per_layer)
        return super().prefill_forward(page_table=page_table, page_tables_per_layer=tables, **kwargs)

    def decode_forward(self, *, page_table, page_tables_per_layer, **kwargs):
        tables = [page_table] * len(page_tables_per_layer)
        return super().decode_forward(page_table=page_table, page_tables_per_layer=tables, **kwargs)


class SharesOneBufferAmongAllLayers:
    def allocate_kv_cache_per_layer(self, specs):
        return super().allocate_kv_cache_per_layer([(shape, dtype, 0) for shape, dtype, _ in specs])


LAYER_BREAKAGES = {
    LooksBehindItsWindows: "windows",
    WritesBehindItsWindows: "windows",
    TakesOneTableForAllLayers: "prefill-decode",
    SharesOneBufferAmongAllLayers: "prefill-decode",
}
