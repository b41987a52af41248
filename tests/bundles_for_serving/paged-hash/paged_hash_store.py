"""The paged store that stands for the KV cache, with an owner for every page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from paged_hash import cell, term

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Words = npt.NDArray[np.uint64]

__all__ = ["JUNK", "PagedStore"]

JUNK = -7
"""What padded writes leave behind."""


@dataclass(slots=True, eq=False)
class PagedStore:
    """Cells of tokens and fingerprints, [pages, page size]; -1 where nothing was written."""

    tokens: Ints
    fingerprints: Words
    owners: Ints
    """Who wrote to each page last."""

    @classmethod
    def allocate(cls, pages: int, page_size: int) -> PagedStore:
        shape = (pages, page_size)
        return cls(np.full(shape, -1, np.int64), np.zeros(shape, np.uint64), np.full(pages, -1, np.int64))

    @property
    def page_size(self) -> int:
        return self.tokens.shape[1]

    def prefill(self, pages: Ints, tokens: Ints, start: int, owner: int) -> None:
        """Write ``tokens`` [m] at positions from ``start`` on, through the row's ``pages`` [w]."""
        positions = np.arange(start, start + len(tokens))
        before = self.fingerprint_at(pages[None], np.array([start]))[0]
        fingerprints = before + np.cumsum(term(tokens, positions), dtype=np.uint64)
        self._write(pages[positions // self.page_size], positions, tokens, fingerprints, owner)

    def decode(self, pages: Ints, tokens: Ints, positions: Ints, owners: Ints) -> None:
        """Write one token for each row: ``pages`` [r, w], the others [r]."""
        fingerprints = self.fingerprint_at(pages, positions) + term(tokens, positions)
        rows = np.arange(len(pages))
        self._write(pages[rows, positions // self.page_size], positions, tokens, fingerprints, owners)

    def spoil(self, pages: Ints, positions: Ints) -> None:
        """A padded write: junk through the row's ``pages`` [w], as far as these reach."""
        positions = positions[positions < len(pages) * self.page_size]
        self.tokens[pages[positions // self.page_size], positions % self.page_size] = JUNK

    def fingerprint_at(self, pages: Ints, positions: Ints) -> Words:
        """The fingerprint in the cell before each row's position; 0 at the start."""
        before = np.maximum(positions - 1, 0)
        rows = np.arange(len(pages))
        found = self.fingerprints[pages[rows, before // self.page_size], before % self.page_size]
        return np.where(positions > 0, found, np.uint64(0))

    def read(self, pages: Ints, count: int) -> Ints:
        """The first ``count`` tokens of the row with ``pages`` [w]."""
        return self.tokens[pages[: -(-count // self.page_size)]].reshape(-1)[:count]

    def hashes(self, pages: Ints, lengths: Ints) -> Words:
        """The sum over all cells of each row, read through ``pages`` [r, w] up to ``lengths`` [r]."""
        width = -(-int(lengths.max(initial=0)) // self.page_size)
        shape = (len(pages), width * self.page_size)
        positions = np.arange(shape[1])
        cells = cell(
            self.tokens[pages[:, :width]].reshape(shape),
            self.fingerprints[pages[:, :width]].reshape(shape),
            positions,
        )
        return (cells * (positions < lengths[:, None])).sum(axis=1, dtype=np.uint64)

    def _write(self, pages: Ints, positions: Ints, tokens: Ints, fingerprints: Words, owner: int | Ints) -> None:
        offsets = positions % self.page_size
        self.tokens[pages, offsets] = tokens
        self.fingerprints[pages, offsets] = fingerprints
        self.owners[pages] = owner
