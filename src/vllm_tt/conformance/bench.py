"""Plays cases on a rig and compares what comes out with the same rows run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tt.conformance.compare import difference, unlike
from vllm_tt.conformance.pages import PageWatch
from vllm_tt.conformance.rig import Chunk, Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from vllm_tt.conformance.cases import Case
    from vllm_tt.conformance.rig import Rig

__all__ = ["Bench", "Played"]


class Played:
    """One request on the rig: its tokens, known in advance, and how many are computed."""

    def __init__(self, slot: int, tokens: list[int], length: int, pages: list[int]) -> None:
        self.slot = slot
        self.tokens = tokens
        self.length = length
        self.pages = pages

    def chunk(self, start: int = 0, end: int | None = None) -> Chunk:
        return Chunk(slot=self.slot, tokens=self.tokens, start=start, end=end or self.length, pages=self.pages)

    def token(self, step: int) -> Token:
        """The token decoded in ``step``, counted from 0."""
        at = self.length + step
        return Token(slot=self.slot, token=self.tokens[at], position=at, pages=self.pages)


class Bench:
    """A rig, and what single rows give on it."""

    def __init__(self, rig: Rig, tolerance: float) -> None:
        self.rig = rig
        self.tolerance = tolerance
        self.worst = 0.0
        """The largest difference seen so far."""
        self._alone: dict[tuple[tuple[int, ...], int, int], list[torch.Tensor]] = {}

    def rows(self, case: Case, *, extra: int = 0) -> list[Played]:
        """The case's requests with pages of their own, which have the same ids in every lane; ``extra`` decode steps
        beyond the case's can follow.
        """
        sizes = self.rig.sizes
        pool = list(range(1, sizes.pages))
        if case.permuted:
            pool = pool[::-2] + pool[-2::-2]  # no two pages of a row follow one another
        pools = [pool] * sizes.lanes
        made = []
        for i, row in enumerate(case.rows):
            tokens = case.prompt(i, sizes.vocab_size)
            tokens += [sizes.vocab_size // 2] * extra
            needed, lane = -(-len(tokens) // sizes.page_size), sizes.lane_of(row.slot)
            pages, pools[lane] = pools[lane][:needed], pools[lane][needed:]
            made.append(Played(row.slot, tokens, row.length, pages))
        return made

    def play(self, case: Case, *, split: bool = False) -> list[list[torch.Tensor]]:
        """For each row the logits [V] after its prompt and after each decode step."""
        rows = self.rows(case)
        out = [[logits] for logits in self.prefill(rows, case.chunk)]
        for step in range(case.steps):
            found = self.rig.decode([row.token(step) for row in rows], split=split)
            for row, logits in zip(rows, out, strict=True):
                logits.append(found[row.slot])
        return out

    def prefill(self, rows: Sequence[Played], chunk: int | None = None) -> list[torch.Tensor]:
        """Logits [V] of each row's last token; all rows in one call, or in one for each round of chunks."""
        if chunk is None:
            return list(self.rig.prefill([row.chunk() for row in rows]))
        last: dict[int, torch.Tensor] = {}
        for start in range(0, max(row.length for row in rows), chunk):
            going = [row for row in rows if start < row.length]
            found = self.rig.prefill([row.chunk(start, min(row.length, start + chunk)) for row in going])
            last |= {row.slot: logits for row, logits in zip(going, found, strict=True)}
        return [last[row.slot] for row in rows]

    def alone(self, tokens: Sequence[int], length: int, steps: int) -> list[torch.Tensor]:
        """What ``tokens[:length]`` and ``steps`` decoded tokens after it give in slot 0, with pages in turn."""
        key = (tuple(tokens[: length + steps]), length, steps)
        if key not in self._alone:
            needed = -(-(length + steps) // self.rig.sizes.page_size)
            row = Played(0, list(tokens), length, list(range(1, needed + 1)))
            out = self.prefill([row])
            out += [self.rig.decode([row.token(step)])[0] for step in range(steps)]
            self._alone[key] = out
        return self._alone[key]

    def compare(self, what: str, found: torch.Tensor, expected: torch.Tensor) -> str | None:
        self.worst = max(self.worst, difference(found, expected))
        fault = unlike(found, expected, self.tolerance)
        return f"{what}: {fault}" if fault else None

    def watch(self) -> PageWatch:
        pool, pages = self.rig.pool, self.rig.sizes.pages
        return PageWatch(self.rig.kv_cache, pool.size(pages), pool.page_of)
