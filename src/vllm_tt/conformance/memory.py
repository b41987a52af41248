"""How much of each chip's DRAM is taken."""

from __future__ import annotations

from typing import Any

__all__ = ["DRAM"]


class DRAM:
    """The DRAM of one chip of a mesh: what each stage has added."""

    def __init__(self, ttnn: Any, device: Any) -> None:
        self._ttnn = ttnn
        self._device = device
        self.stages: dict[str, int] = {}
        """Bytes allocated when each stage was done."""

    def note(self, stage: str) -> None:
        view = self._view()
        self.stages[stage] = view.total_bytes_allocated_per_bank * view.num_banks

    @property
    def total(self) -> int:
        """Bytes that can be allocated on a chip."""
        view = self._view()
        total: int = view.total_bytes_per_bank * view.num_banks
        return total

    def summary(self) -> str:
        """One line: what each stage took, of how much."""
        parts, before = [], 0
        for stage, taken in self.stages.items():
            parts.append(f"{stage} {_size(taken - before)}")
            before = taken
        return f"{', '.join(parts)}; {_size(before)} of {_size(self.total)} on each chip"

    def _view(self) -> Any:
        return self._ttnn.get_memory_view(self._device, self._ttnn.BufferType.DRAM)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if abs(count) >= 1e7 else f"{count / 1e6:.2f} MB"
