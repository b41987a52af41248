# ruff: noqa: ARG002 - the signatures are those that vLLM looks for
"""The class objects that vLLM's model registry holds for our models.

vLLM inspects a registered class before it loads anything. Given a name it imports its whole model
zoo in a subprocess to do so; given a class object it answers at once. A facade is such an object: it
has the shape of a text-generation model and is never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from vllm_tt.models.entry import Entry

__all__ = ["Facade", "FacadeRun", "facade"]


class FacadeRun(TTError):
    """{arch} stands for a model of the Tenstorrent worker: vLLM's own model loader cannot run it."""


class Facade(nn.Module):
    """What vLLM needs to see of a text-generation model; every call on it is refused."""

    entry: ClassVar[Entry]
    # The platform refuses pipeline parallelism with words of its own, so vLLM must let it pass first.
    supports_pp: ClassVar[bool] = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        self._refuse()

    @classmethod
    def load(cls) -> type:
        """The adapter class behind the facade; imports it."""
        return cls.entry.load()

    def embed_input_ids(self, input_ids: Any) -> NoReturn:
        self._refuse()

    def forward(self, input_ids: Any, positions: Any, intermediate_tensors: Any = None) -> NoReturn:
        self._refuse()

    def compute_logits(self, hidden_states: Any) -> NoReturn:
        self._refuse()

    def make_empty_intermediate_tensors(self, batch_size: int, dtype: Any, device: Any) -> NoReturn:
        self._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise FacadeRun(arch=cls.entry.arch)


def facade(entry: Entry) -> type[Facade]:
    """The facade of one entry, named as the entry is registered."""
    return type(entry.arch, (Facade,), {"entry": entry, "__module__": __name__})
