"""What is known of a generator built into tt-metal: the classes that serve it, what selects one, what each takes.

The rows are in ``vllm_tt.models.builtin_table``. Class paths are those of tt-metal's ``models`` tree, which a
tt-metal checkout puts on PYTHONPATH.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from vllm_tt.errors import ConfigError
from vllm_tt.mesh import BLACKHOLE, WORMHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_tt.env import Variable

__all__ = [
    "NOT_YET",
    "Builtin",
    "Capacity",
    "Feature",
    "NotServedYet",
    "SelectorError",
    "Variant",
    "VariableMissing",
    "meshes_text",
]


class SelectorError(ConfigError):
    """{variable}={found!r} selects no generator for {arch}. Valid values: {valid}."""


class NotServedYet(ConfigError):
    """{owner} ({main_class}) cannot be served yet: it takes {features}. 'tt-bundle list --builtin' shows what can."""


class VariableMissing(ConfigError):
    """{owner} ({main_class}) needs the variable {variable}, which is not set. {help}"""


class Feature(str, Enum):
    """What serving a generator takes beyond prompts of text and layers with one kind of cache."""

    IMAGES = "images in the prompt"
    CROSS_ATTENTION = "cross attention to images"
    KV_GROUPS = "several KV cache groups"


NOT_YET = frozenset({Feature.CROSS_ATTENTION})
"""What cannot be served yet. A feature that is taken out of here is served from then on, and listed so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Tokens that a KV cache holds for all its users, which is the longest context too."""

    tokens: int | None = 131_072
    """None: as many as --max-model-len times --max-num-seqs."""
    models: str = ""
    """Which checkpoints, where it is not all others."""
    meshes: tuple[str, ...] = ()

    def __str__(self) -> str:
        number = "max-model-len x max-num-seqs" if self.tokens is None else f"{self.tokens}"
        models = f" for {self.models}" if self.models else ""
        return number + models + (f" on {meshes_text(self.meshes)}" if self.meshes else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One class of tt-metal's and what it takes to serve it."""

    main_class: str
    """``module:Class``."""
    meshes: tuple[str, ...] = ()
    """The machines that it was made for, as MESH_DEVICE names them; empty: any."""
    lanes: bool = False
    """It serves several lanes with one call, though it does not declare ``supports_lanes``."""
    capacities: tuple[Capacity, ...] = (Capacity(),)
    """Its own ``get_max_tokens_all_users``: what holds for all checkpoints, then the exceptions."""
    needs: frozenset[Feature] = frozenset()
    max_images: int | None = None
    """How many a prompt may have, where the class does not declare it."""
    image_names: tuple[str, ...] = ()
    """What else it looks for images under, where its signature does not tell."""
    variables: tuple[Variable[str | None], ...] = ()
    """What must be set in the environment."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of `vllm serve` that deployments use, by machine."""
    notes: tuple[str, ...] = ()
    """What else an operator should know, each a sentence without its full stop."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What it takes that cannot be served yet, in words."""
        return tuple(feature.value for feature in Feature if feature in self.needs & NOT_YET)

    def check(self, owner: str, environ: Mapping[str, str] | None = None) -> None:
        """Raise NotServedYet, or VariableMissing, where this class cannot be served so."""
        facts = {"owner": owner, "main_class": self.main_class}
        if self.missing:
            raise NotServedYet(**facts, features=" and ".join(self.missing))
        for variable in self.variables:
            if variable.get(environ) is None:
                raise VariableMissing(**facts, variable=variable.name, help=variable.help)


@dataclass(frozen=True, kw_only=True, slots=True)
class Builtin:
    """One registered architecture and the classes that can serve it."""

    arch: str
    """The registered name, prefixed."""
    models: str
    """Whose checkpoints these are, in words."""
    variants: Mapping[str, Variant]
    """By value of the selector, the default first; the one under "" where there is no selector."""
    selector: Variable[str | None] | None = None
    text_only: bool = False
    """Text alone is served, whatever vLLM's own class of the architecture takes: the plain name is replaced too."""
    test_model: bool = False
    """Served only with the option ``register_test_models``."""

    @property
    def default(self) -> str:
        return next(iter(self.variants))

    def choose(self, environ: Mapping[str, str] | None = None) -> str:
        """The selector's value in the environment; raises SelectorError for one that is not in the table."""
        value = self.selector.get(environ) if self.selector else None
        if value is None:
            return self.default
        if value not in self.variants:
            variable = self.selector.name if self.selector else ""
            raise SelectorError(variable=variable, found=value, arch=self.arch, valid=", ".join(self.variants))
        return value


def meshes_text(meshes: tuple[str, ...]) -> str:
    """``any``, the name of a chip whose machines these are, or the machines."""
    return {(): "any", WORMHOLE: "Wormhole", BLACKHOLE: "Blackhole"}.get(meshes, ", ".join(meshes))
