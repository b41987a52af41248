"""Sampled calls on the oracle, with parts of them as a test wants."""

from dataclasses import replace

import numpy as np
import torch

from vllm_tt.contract import DeviceSamplingParams

EVERYTHING = {
    "reload_inputs": True,
    "reload_page_table": False,
    "reload_sampling_params": True,
    "reset_sampling_state": True,
}
NOTHING = dict.fromkeys(EVERYTHING, False)
PAGES = NOTHING | {"reload_page_table": True}
PARAMETERS = NOTHING | {"reload_sampling_params": True, "reset_sampling_state": True}


def params(rows, **changes):
    """Greedy parameters of ``rows`` rows, save ``changes``: field -> {row: value}, or another list."""
    made = DeviceSamplingParams.greedy(rows)
    for name, change in changes.items():
        values = change
        if isinstance(change, dict):
            values = getattr(made, name)
            for row, value in change.items():
                values[row] = value
        made = replace(made, **{name: values})
    return made


def stochastic(rows, *drawn, **changes):
    """Rows ``drawn`` at temperature 1 from all tokens."""
    spread = {"temperature": dict.fromkeys(drawn, 1.0), "top_k": dict.fromkeys(drawn, 512)}
    return params(rows, **spread | changes)


class Calls:
    """Decodes a batch whose rows begin with ``prompts``, slot -> tokens."""

    def __init__(self, served, prompts, sampling=None):
        self.served = served
        self.slots = len(served.tables)
        self.lengths = {slot: len(prompt) for slot, prompt in prompts.items()}
        out = prefill(served, prompts, sampling_params=sampling or params(len(prompts)))
        self.first = dict(zip(prompts, tokens_of(out).tolist(), strict=True))
        self.last = dict(self.first)

    def decode(self, commands, *, sampling=None, drop=(), grow=True, read=True, **more):
        """One call; without ``read`` its handle. ``drop``: rows that the host leaves out."""
        rows = [slot for slot in self.lengths if slot not in drop]
        tokens, start_pos = np.zeros((self.slots, 1), np.int32), np.full(self.slots, -1, np.int32)
        table = np.zeros_like(self.served.tables)
        for slot in rows:
            if grow:
                self.served.grow(slot, self.lengths[slot] + 1)
            tokens[slot], start_pos[slot], table[slot] = self.last[slot], self.lengths[slot], self.served.tables[slot]
        for slot in self.lengths:
            self.lengths[slot] += 1
        out = self.served.adapter.decode_forward(
            tokens=torch.from_numpy(tokens),
            page_table=torch.from_numpy(table),
            kv_cache=self.served.kv_cache,
            start_pos=torch.from_numpy(start_pos),
            enable_trace=False,
            read_from_device=read,
            **commands,
            **({"sampling_params": sampling or params(self.slots)} if sampling is not False else {}),
            **more,
        )
        return self.taken(out) if read else out

    def read(self, handle, *, is_tokens=True):
        out, events = self.served.adapter.read_decode_output(handle, async_read=True)
        assert events == []
        return self.taken(self.served.adapter.process_decode_output_host(out, is_tokens=is_tokens))

    def taken(self, out):
        """``out``, with the host's last tokens brought up to it where it has tokens."""
        if not (isinstance(out, torch.Tensor) and out.is_floating_point()):
            self.last = {slot: int(tokens_of(out)[slot]) for slot in self.lengths}
        return out

    def tokens(self, out):
        """slot -> token"""
        return {slot: int(tokens_of(out)[slot]) for slot in self.lengths}


def tokens_of(out):
    return (out[0] if isinstance(out, tuple) else out).view(-1)


def prefill(served, prompts, **more):
    """Whole prompts in one call; what the adapter returns."""
    tokens = np.zeros((len(prompts), max(map(len, prompts.values()))), np.int32)
    for i, (slot, prompt) in enumerate(prompts.items()):
        served.grow(slot, len(prompt))
        tokens[i, : len(prompt)] = prompt
    return served.adapter.prefill_forward(
        tokens=torch.from_numpy(tokens),
        page_table=torch.from_numpy(served.tables[list(prompts)]),
        kv_cache=served.kv_cache,
        enable_trace=False,
        prompt_lens=np.array([len(prompt) for prompt in prompts.values()]),
        start_pos=np.zeros(len(prompts), np.int64),
        empty_slots=list(prompts),
        **more,
    )
