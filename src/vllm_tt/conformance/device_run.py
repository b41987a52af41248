"""Plays a case with sampling on the device as a server does, which knows a step's tokens only when it has read them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from vllm_tt.conformance.rig import Token
from vllm_tt.conformance.sampled import Ask, params_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from vllm_tt.conformance.bench import Bench
    from vllm_tt.conformance.cases import Case
    from vllm_tt.conformance.rig import Submitted
    from vllm_tt.conformance.sampled import Answer

__all__ = ["DeviceRun", "drawing", "widest_top_k"]


def widest_top_k(bench: Bench) -> int:
    """How many tokens the device draws from at most; 1 where it draws from none."""
    limit = bench.rig.capabilities.max_device_top_k
    vocab = bench.rig.sizes.vocab_size
    return vocab if limit is None else min(limit, vocab)


def drawing(bench: Bench, **more: Any) -> dict[str, Any]:
    """Parameters of a row that draws, from a flat distribution."""
    return {"temperature": 5.0, "top_k": widest_top_k(bench), **more}


class DeviceRun:
    """A case's rows on the device: one prefill, then decodes."""

    def __init__(self, bench: Bench, case: Case, params: Mapping[int, Mapping[str, Any]] | None = None) -> None:
        """``params``: by row of the case, the sampling parameters in which it is not greedy."""
        self._bench = bench
        self._params = params or {}
        self._forced: dict[tuple[int, int], int] = {}
        self._unread: deque[Submitted] = deque()
        self._steps = 0
        self.rows = bench.rows(case, extra=1)
        self.live = list(range(len(self.rows)))
        """The rows that are decoded still."""
        self.tokens: list[list[int]] = [[] for _ in self.rows]
        """What each row sampled: after its prompt, then in each decode."""

    def prefill(self, logits_rows: Sequence[int] = ()) -> Answer:
        """Every prompt, in one call."""
        ask = Ask(params=params_of(len(self.rows), self._params), logits_rows=logits_rows)
        answer = self._bench.rig.sample_prefill([row.chunk() for row in self.rows], ask)
        for tokens, token in zip(self.tokens, answer.tokens, strict=True):
            tokens.append(token)
        return answer

    def ask(self, **more: Any) -> Ask:
        """What a decode asks for."""
        by_slot = {self.rows[i].slot: self._params[i] for i in self.live if i in self._params}
        return Ask(params=params_of(self._bench.rig.sizes.slots, by_slot), **more)

    def force(self, row: int, token: int) -> None:
        """The host decodes ``token`` next, whatever was sampled."""
        self._forced[row, self._steps] = token

    def can_go_on(self) -> bool:
        """Whether the next decode need not load everything again."""
        return self._bench.rig.can_go_on([self._token(i, late=True) for i in self.live])

    def decode(self, ask: Ask | None = None, *, goes_on: bool = False, split: bool = False) -> Answer:
        """One step, read before the next; with ``goes_on`` the host's tokens and positions are out of date."""
        self.submit(ask, goes_on=goes_on, split=split)
        return self.read()

    def submit(self, ask: Ask | None = None, *, goes_on: bool = False, split: bool = True) -> None:
        """One step, to be read later. Where the device cannot go on, the steps before are read first."""
        goes_on = goes_on and self.can_go_on()
        if not goes_on:
            self.read_until(unread=0)
        rows = [self._token(i, late=goes_on) for i in self.live]
        self._unread.append(self._bench.rig.submit(rows, ask or self.ask(), goes_on=goes_on, split=split))
        self._steps += 1

    def read(self) -> Answer:
        """The oldest step that was not read yet."""
        answer = self._bench.rig.finish(self._unread.popleft())
        for i in self.live:
            self.tokens[i].append(answer.tokens[self.rows[i].slot])
        return answer

    def read_until(self, *, unread: int) -> None:
        """Read steps, the oldest first, until so many are left."""
        while len(self._unread) > unread:
            self.read()

    def logits(self, row: int) -> list[torch.Tensor]:
        """Those [V] that each of a row's tokens was chosen from, as the row alone gives them."""
        played, steps = self.rows[row], len(self.tokens[row]) - 1
        return self._bench.alone(played.tokens[: played.length] + self._decoded(row, steps), played.length, steps)

    def next_logits(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """By row, those [V] of one more decode without sampling: as the device gives them, as the row alone does."""
        found = self._bench.rig.decode([self._token(i) for i in self.live])
        out = {}
        for i in self.live:
            played, decoded = self.rows[i], self._decoded(i, self._steps + 1)
            expected = self._bench.alone(played.tokens[: played.length] + decoded, played.length, self._steps + 1)
            out[i] = (found[played.slot], expected[-1])
        return out

    def _decoded(self, row: int, steps: int) -> list[int]:
        """What a row was given to decode in the first ``steps``."""
        return [self._forced.get((row, step), token) for step, token in enumerate(self.tokens[row][:steps])]

    def _token(self, row: int, *, late: bool = False) -> Token:
        played, step = self.rows[row], self._steps
        token = 0 if late else self._forced.get((row, step), self.tokens[row][step])
        return Token(slot=played.slot, token=token, position=played.length + step, pages=played.pages, late=late)
