"""What a class has that the adapter contract asks about, as plain data: the same from its source and from the class."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UNKNOWN", "AdapterFacts", "Body", "Method", "Parameter", "Place", "Signature"]

UNKNOWN = "<unknown>"
"""Stands for a value that the source text does not settle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A line of a file of the bundle; the empty file is the folder."""

    file: str = ""
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One named parameter of a function."""

    name: str
    required: bool
    by_position: bool = True
    by_keyword: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What a bound method can be called with: ``self`` and ``cls`` are not among the parameters."""

    parameters: tuple[Parameter, ...] = ()
    takes_args: bool = False
    takes_kwargs: bool = False

    def accepts(self, keyword: str) -> bool:
        """Whether the keyword can be passed by name."""
        return self.takes_kwargs or any(one.name == keyword and one.by_keyword for one in self.parameters)


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """What a function's text mentions; where it hands its keywords on, others may read them."""

    mentions: frozenset[str] = frozenset()
    asserts: frozenset[str] = frozenset()
    """Names in the conditions of its assertions."""
    hands_on: bool = False
    constant: Any = UNKNOWN
    """What it returns, if that is a literal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A function of the class, or something else bound to the name: then ``kind`` is ``value``."""

    name: str
    kind: str
    """``instance``, ``class``, ``static``, ``property`` or ``value``."""
    is_async: bool = False
    is_generator: bool = False
    signature: Signature | None = None
    """None when a decorator may have changed it."""
    body: Body | None = None
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterFacts:
    """An adapter class, its bases in the bundle included."""

    name: str
    place: Place
    methods: Mapping[str, Method] = field(default_factory=dict)
    bases_elsewhere: tuple[str, ...] = ()
    """Bases that cannot be read, which may have further methods; ``?`` when the text does not name them."""
    capabilities: Any = None
    """The dict that the class declares, None, or UNKNOWN."""
    capabilities_on_instance: bool = False
    capabilities_place: Place = field(default_factory=Place)
    decode_contract: Any = None
    """``decode_input_update_contract``."""
    several_groups: bool = False
    abstract: tuple[str, ...] = ()
    """Abstract methods that the class leaves open."""
    max_tokens: Any = UNKNOWN
    """What ``get_max_tokens_all_users`` gave when it was called, or the error's text."""

    @property
    def complete(self) -> bool:
        """Whether all methods are known."""
        return not self.bases_elsewhere

    def declares(self, capability: str) -> bool:
        """Whether the class declares the capability, as the platform reads it."""
        return isinstance(self.capabilities, dict) and self.capabilities.get(capability) is True

    def to_dict(self) -> dict[str, Any]:
        """For JSON; bodies are left out."""
        methods = [asdict(one) | {"body": None} for one in self.methods.values()]
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("methods", "place")}
        return plain | {"methods": methods, "capabilities_place": None}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], place: Place) -> AdapterFacts:
        """The inverse of ``to_dict``; ``place`` is that of the class."""
        methods = {}
        for one in raw["methods"]:
            signature = one["signature"]
            if signature is not None:
                parameters = tuple(Parameter(**parameter) for parameter in signature["parameters"])
                signature = Signature(**{**signature, "parameters": parameters})
            methods[one["name"]] = Method(**{**one, "signature": signature, "place": Place(**one["place"])})
        lists = {name: tuple(raw[name]) for name in ("bases_elsewhere", "abstract")}
        return cls(**{**raw, **lists, "methods": methods, "place": place, "capabilities_place": place})
