"""One registered model: which class serves an architecture, where it comes from, what it declares."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vllm_tt import env
from vllm_tt.bundle.declared import ATTRIBUTE, UnknownFromSource, declared_capabilities
from vllm_tt.bundle.names import PREFIX
from vllm_tt.bundle.source import find_module
from vllm_tt.contract import Capabilities
from vllm_tt.mesh import MESH_GRIDS
from vllm_tt.models.builtin import meshes_text
from vllm_tt.models.builtin_table import VARIANTS
from vllm_tt.models.loader import load_class

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Literal

    from vllm_tt.bundle.reading import Bundle
    from vllm_tt.contract import Adapter
    from vllm_tt.models.builtin import Variant

__all__ = ["Entry"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The class that serves one architecture."""

    arch: str
    """The registered name, prefixed: ``TTLlamaForCausalLM``."""
    main_class: str
    """``module:Class``."""
    source: Literal["bundle", "builtin", "override"]
    bundle: Bundle | None = None
    plain: str | None = None
    """The name that checkpoints declare, or None when only the prefixed one is served."""
    text_only: bool = False
    """The plain name is served as a text model even where vLLM's own class takes more."""
    test_model: bool = False

    @classmethod
    def of_bundle(cls, arch: str, bundle: Bundle) -> Entry:
        """The entry of an architecture as the bundle's metadata writes it."""
        plain = None if arch.startswith(PREFIX) else arch
        registered = arch if plain is None else PREFIX + plain
        return cls(arch=registered, plain=plain, main_class=bundle.metadata.main_class, source="bundle", bundle=bundle)

    @property
    def folder(self) -> Path | None:
        return self.bundle.folder if self.bundle else None

    @property
    def origin(self) -> str:
        """Where the class comes from, for log lines and errors."""
        if self.bundle is not None:
            return f"bundle {self.bundle.name}"
        return "built-in model " + self.arch if self.source == "builtin" else "TT_MODEL_CLASS_OVERRIDES"

    @property
    def variant(self) -> Variant | None:
        """The built-in class that serves it, whoever named it; None for any other."""
        return None if _is_inside(self.main_class, self.folder) else VARIANTS.get(self.main_class)

    @property
    def made_for(self) -> tuple[str, ...]:
        """The meshes that the class was made for, as MESH_DEVICE names them; empty: any, or not said."""
        if self.bundle is not None and self.bundle.metadata.mesh_devices:
            return self.bundle.metadata.mesh_devices
        return self.variant.meshes if self.variant else ()

    def doubt(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Why it may not run on the machine that the environment names."""
        environ = os.environ if environ is None else environ
        mesh = environ.get(env.MESH_DEVICE.name) or environ.get(env.EMULATE.name) or ""
        if mesh not in MESH_GRIDS or not self.made_for or mesh in self.made_for:
            return None
        return f"{self.origin} was made for {meshes_text(self.made_for)}; this mesh is {mesh}"

    def capabilities(self) -> Capabilities:
        """What the class declares: read from its source, or from the class where the source does not tell.

        May import the adapter, and then raises what ``load`` raises.
        """
        found = _capabilities(self.main_class, self.folder, self.origin)
        if (variant := self.variant) is None:
            return found
        images = found.max_images_per_prompt
        return replace(
            found,
            supports_lanes=found.supports_lanes or variant.lanes,
            max_images_per_prompt=variant.max_images if images is None else images,
        )

    def load(self) -> type[Adapter]:
        """The adapter class; imports it. Raises the errors of ``vllm_tt.models.loader``."""
        return load_class(self.main_class, self.folder, self.origin)


@lru_cache(maxsize=64)  # a faulty declaration is warned about once, not at every look
def _capabilities(main_class: str, folder: Path | None, owner: str) -> Capabilities:
    module, _, name = main_class.partition(":")
    try:
        declared = declared_capabilities(module, name, str(folder) if _is_inside(main_class, folder) else None)
    except UnknownFromSource:
        declared = getattr(load_class(main_class, folder, owner), ATTRIBUTE, None)
    return Capabilities.from_mapping(declared, owner)  # type: ignore[arg-type]


def _is_inside(main_class: str, folder: Path | None) -> bool:
    """Whether the class is in the bundle's own files."""
    return folder is not None and find_module(main_class.partition(":")[0], [str(folder)]) is not None
