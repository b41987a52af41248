"""The steps that the scheduler can emit, and whether warm-up has compiled what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt.conformance.rig import Chunk, Token
from vllm_tt.conformance.sampled import Ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_tt.conformance.rig import Rig

__all__ = ["Step", "emitted", "programs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One forward call of a server: some rows prefilled, or all rows decoded."""

    rows: int
    end: int
    """Where each row ends; decoded is the token before it."""
    start: int | None = None
    """Where a prefill begins; None for a decode."""
    sampled: bool = False

    def __str__(self) -> str:
        where = ", sampled on the device" if self.sampled else ""
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''}"
        if self.start is None:
            return f"a decode of {rows} at position {self.end - 1}{where}"
        span = f"tokens {self.start} to {self.end}" if self.start else f"{self.end} token{'s' if self.end > 1 else ''}"
        return f"a prefill of {rows}, {span}{where}"

    def run(self, rig: Rig) -> None:
        size = rig.sizes.page_size
        each = -(-self.end // size)
        pages = [list(range(1 + i * each, 1 + (i + 1) * each)) for i in range(self.rows)]
        if self.start is None:
            self._compute(rig, pages, 0, self.end - 1)
            rows = [Token(slot=i, token=1, position=self.end - 1, pages=pages[i]) for i in range(self.rows)]
            if self.sampled:
                rig.sample(rows, Ask.greedy(rig.sizes.slots))
            else:
                rig.decode(rows)
            return
        if self.start:
            self._compute(rig, pages, 0, self.start)
        self._compute(rig, pages, self.start, self.end, sampled=self.sampled)

    def _compute(self, rig: Rig, pages: list[list[int]], start: int, end: int, *, sampled: bool = False) -> None:
        """Prefill the rows; what comes before a later step must have been computed too."""
        if end > start:
            chunks = [Chunk(slot=i, tokens=[1] * end, start=start, end=end, pages=own) for i, own in enumerate(pages)]
            if sampled:
                rig.sample_prefill(chunks, Ask.greedy(len(chunks)))
            else:
                rig.prefill(chunks)


def emitted(rig: Rig) -> Iterator[Step]:
    """Steps of every kind, the smallest first."""
    sizes, declared = rig.sizes, rig.capabilities
    sampling = (False, True) if declared.supports_sample_on_device else (False,)
    resumes = declared.supports_chunked_prefill or declared.supports_prefix_caching
    for sampled in sampling:
        for end in _lengths(sizes.page_size, sizes.max_seq_len):
            yield Step(rows=1, start=0, end=end, sampled=sampled)
            if resumes and end > sizes.page_size:
                yield Step(rows=1, start=(end - 1) // sizes.page_size * sizes.page_size, end=end, sampled=sampled)
        for rows in sorted({min(2, sizes.slots), sizes.slots}):
            if rows * 2 < sizes.pages:
                yield Step(rows=rows, start=0, end=sizes.page_size + 1, sampled=sampled)
        yield Step(rows=1, end=sizes.page_size + 1, sampled=sampled)


def programs(device: Any) -> int:
    """How many programs are compiled on a mesh and its submeshes."""
    count: int = device.num_program_cache_entries()
    return count + sum(programs(part) for part in device.get_submeshes())


def _lengths(page_size: int, longest: int) -> list[int]:
    """Around every boundary that a program may be compiled for, shortest first."""
    found = {1, 2, page_size - 1, page_size, page_size + 1, longest - 1, longest}
    power = 16
    while power < longest:
        found |= {power, power + 1}
        power *= 2
    return sorted(length for length in found if 0 < length <= longest)
