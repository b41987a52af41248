"""Token counts as a distribution: ``512``, ``uniform:16-1024`` or ``lognormal:512:0.8``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["BadLengths", "Lengths"]


class BadLengths(ConfigError):
    """{text!r} is no distribution of token counts: expected a number such as 512, uniform:LOW-HIGH such as
    uniform:16-1024, or lognormal:MEDIAN:SIGMA such as lognormal:512:0.8, with counts of at least 1.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """A distribution of token counts."""

    kind: Literal["fixed", "uniform", "lognormal"]
    low: int
    """The count, the least count, or the median."""
    high: int = 0
    """The largest count (uniform), included."""
    sigma: float = 0.0
    """Standard deviation of the logarithm (lognormal)."""

    @classmethod
    def parse(cls, text: str) -> Lengths:
        if found := re.fullmatch(r"(?:fixed:)?(\d+)", text):
            lengths = cls(kind="fixed", low=int(found[1]))
        elif found := re.fullmatch(r"uniform:(\d+)-(\d+)", text):
            lengths = cls(kind="uniform", low=int(found[1]), high=int(found[2]))
        elif found := re.fullmatch(r"lognormal:(\d+):(\d+(?:\.\d+)?)", text):
            lengths = cls(kind="lognormal", low=int(found[1]), sigma=float(found[2]))
        else:
            raise BadLengths(text=text)
        if lengths.low < 1 or (lengths.kind == "uniform" and lengths.high < lengths.low):
            raise BadLengths(text=text)
        return lengths

    def sample(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """``count`` token counts, each at least 1."""
        import numpy as np

        if self.kind == "uniform":
            return rng.integers(self.low, self.high, size=count, endpoint=True)
        if self.kind == "lognormal":
            drawn = np.rint(self.low * np.exp(self.sigma * rng.standard_normal(count)))
            return np.maximum(drawn, 1).astype(np.int64)
        return np.full(count, self.low, dtype=np.int64)
