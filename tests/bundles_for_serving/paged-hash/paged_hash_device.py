"""What the device does with each call, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from paged_hash_checks import require
from paged_hash_inputs import DecodeCall, Resident
from paged_hash_sampler import DeviceSampler, draw, logprobs, wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from paged_hash_parameters import Limits, Row
    from paged_hash_rows import Rows

    Ints = npt.NDArray[np.int64]

__all__ = ["NOBODYS", "Device"]

NOBODYS = 3
"""The token of a slot that computes nothing; the model chooses no such token."""


class Device:
    """The rows, the inputs that stay on the device, and the sampler."""

    def __init__(self, rows: Rows, hf_config: Any, limits: Limits, slots: int, record: dict[str, Any]) -> None:
        self.rows = rows
        self._vocab_size: int = hf_config.vocab_size
        self._eos_every: int = getattr(hf_config, "eos_every", 0)
        self._chosen_logit: float = getattr(hf_config, "chosen_logit", 100.0)
        self._limits = limits
        self._slots = slots
        self._record = record
        self._resident = Resident(slots)
        self._sampler = DeviceSampler(slots)

    def prefill(
        self,
        slots: list[int],
        page_table: Ints,
        rows: list[Ints],
        starts: Ints,
        parameters: list[Row] | None,
        logits_rows: list[int] | None,
        pad_to: int,
    ) -> Any:
        """``rows``: each row's tokens from the prompt's first."""
        ends = np.array([len(row) for row in rows])
        tables = self.rows.tables(page_table, np.array(slots), starts, ends)
        for i, slot in enumerate(slots):
            self.rows.prefill(slot, tables[i], rows[i], int(starts[i]))
            if pad_to:
                self.rows.store.spoil(tables[i], np.arange(ends[i], -(-ends[i] // pad_to) * pad_to))
        self._record["steps"]["prefill", "host" if parameters is None else "device"] += 1
        logits = self._logits(np.array(slots), tables)
        if parameters is None:
            return logits[:, None]
        tokens = []
        for i, row in enumerate(parameters):
            token = draw(logits[i].numpy(), row, int(ends[i]), (rows[i].tolist(), []) if row.penalised else None)
            tokens.append(wrong(token, self._vocab_size) if i in (logits_rows or ()) else token)
        return self._sampled(tokens, logits, parameters, logits_rows)

    def decode(self, call: DecodeCall) -> Any:
        self._note(call)
        tokens, positions, page_table = self._resident.load(call)
        live = np.flatnonzero(positions >= 0)
        # A row whose pages the host took away runs on, into the null page, until inputs are loaded again.
        served = live[page_table[live].any(axis=1)]
        width = page_table.shape[1] * self.rows.store.page_size
        require((positions < width).all(), "position {at} is past the page table", at=positions.max())
        tables = self.rows.tables(page_table[served], served, positions[served], positions[served] + 1)
        self.rows.decode(served, tables, tokens[served], positions[served])
        self.rows.run_on(live, tokens[live], positions[live])
        self.rows.idle(np.setdiff1d(np.arange(self._slots), served))
        self._record["decodes_of_row"].update(self.rows.marks[served].tolist())
        logits = torch.zeros((self._slots, self._vocab_size))
        logits[torch.from_numpy(served)] = self._logits(served, tables)
        if call.parameters is None:
            self._sampler.dormant = True
            self._resident.advance(None)
            return logits[:, None]
        return self._sample(call, logits, served, tables, positions >= 0)

    def _sample(
        self, call: DecodeCall, logits: torch.Tensor, served: Ints, tables: Ints, live: npt.NDArray[np.bool_]
    ) -> Any:
        assert call.parameters is not None
        commands, sampler = call.commands, self._sampler
        if commands.parameters:
            sampler.load(call.parameters, live)
        rows = sampler.keep(call.parameters, live)
        if commands.state:
            sampler.reset(call.histories)
        self._record["sampled_dormant"] += sampler.dormant
        chosen = np.full(self._slots, NOBODYS)
        for slot, table in zip(served.tolist(), tables, strict=True):
            length = int(self.rows.ends[slot])
            history = None
            if rows[slot].penalised:
                history = sampler.history(slot, self.rows.store.read(table, length).tolist())
            token = draw(logits[slot].numpy(), rows[slot], length, history)
            unusable = sampler.dormant or slot in (call.logits_rows or ())
            chosen[slot] = wrong(token, self._vocab_size) if unusable else token
            sampler.sampled(slot, int(chosen[slot]))
        self._resident.advance(chosen)
        asked = call.logits_rows
        require(asked is None or set(asked) <= set(served.tolist()), "logits of idle slots: {asked}", asked=asked)
        return self._sampled(chosen[:, None], logits, rows, asked)

    def _sampled(self, chosen: Any, logits: torch.Tensor, rows: Sequence[Row], asked: list[int] | None) -> Any:
        """Tokens in the forms of the contract."""
        tokens = torch.as_tensor(np.array(chosen), dtype=torch.int32)
        found = logprobs(logits, tokens.view(-1).long(), rows, self._limits.logprobs)
        if asked is not None:
            self._record["row_logits"] += len(asked)
            return tokens, found, logits[asked]
        return tokens if found is None else (tokens, found)

    def _logits(self, slots: Ints, tables: Ints) -> torch.Tensor:
        """[r, V]"""
        chosen = self.rows.next_tokens(slots, tables, self._vocab_size, self._eos_every)
        logits = torch.zeros((len(slots), self._vocab_size))
        logits[torch.arange(len(slots)), torch.from_numpy(chosen)] = self._chosen_logit
        return logits

    def _note(self, call: DecodeCall) -> None:
        self._record["steps"]["decode", "host" if call.parameters is None else "device"] += 1
        loaded = call.commands
        for name in ("inputs", "page_table", "parameters", "state"):
            self._record["reloads"][name] += getattr(loaded, name)
        self._record["reloads"]["nothing"] += not (loaded.inputs or loaded.page_table or loaded.parameters)
