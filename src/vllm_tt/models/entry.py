"""One registered model: which class serves an architecture, where it comes from, what it declares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vllm_tt.bundle.declared import ATTRIBUTE, UnknownFromSource, declared_capabilities
from vllm_tt.bundle.names import PREFIX
from vllm_tt.bundle.source import find_module
from vllm_tt.contract import Capabilities
from vllm_tt.models.builtin import SERVE_LANES
from vllm_tt.models.loader import load_class

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Literal

    from vllm_tt.bundle.reading import Bundle
    from vllm_tt.contract import Adapter

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
    note: str = ""
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

    def capabilities(self) -> Capabilities:
        """What the class declares: read from its source, or from the class where the source does not tell.

        May import the adapter, and then raises what ``load`` raises.
        """
        return _capabilities(self.main_class, self.folder, self.origin)

    def load(self) -> type[Adapter]:
        """The adapter class; imports it. Raises the errors of ``vllm_tt.models.loader``."""
        return load_class(self.main_class, self.folder, self.origin)


@lru_cache(maxsize=64)  # a faulty declaration is warned about once, not at every look
def _capabilities(main_class: str, folder: Path | None, owner: str) -> Capabilities:
    module, _, name = main_class.partition(":")
    inside = folder is not None and find_module(module, [str(folder)]) is not None
    try:
        declared = declared_capabilities(module, name, str(folder) if inside else None)
    except UnknownFromSource:
        declared = getattr(load_class(main_class, folder, owner), ATTRIBUTE, None)
    found = Capabilities.from_mapping(declared, owner)  # type: ignore[arg-type]
    return replace(found, supports_lanes=True) if main_class in SERVE_LANES and not inside else found
