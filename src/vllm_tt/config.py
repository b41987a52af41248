"""The options of ``additional_config["tt"]``, parsed once into a frozen record.

They arrive as JSON (``--additional-config '{"tt": {...}}'``) or one by one (``--additional-config.tt.key
value``); vLLM reads a dotted value as JSON where it parses, else as a string. Types are strict: a bool
is not an int, the string "False" is not False, and an unknown key is an error naming the nearest one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from vllm_tt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ADDITIONAL_CONFIG_KEY",
    "Kind",
    "LaneShape",
    "MisplacedOption",
    "NotAMapping",
    "OptionValue",
    "TTConfig",
    "UnknownOption",
    "WrongKey",
]

ADDITIONAL_CONFIG_KEY = "tt"
"""The key of vLLM's ``additional_config`` that holds the options."""

_MEANT_FOR_US = ("tt", "tt_config", "override_tt_config", "plugin_config")
"""Other spellings, in lower case, of the key and of the command-line options that came before it."""


class NotAMapping(ConfigError):
    """{where} must be a mapping of options, found {found}.
    Write --additional-config '{{"tt": {{"trace_mode": "none"}}}}' or --additional-config.tt.trace_mode none.
    """


class UnknownOption(ConfigError):
    """additional_config["tt"] has no option {name!r}.{nearest} The options are {known}."""


class MisplacedOption(ConfigError):
    """additional_config[{name!r}] is an option of "tt": write --additional-config '{{"tt": {{"{name}": ...}}}}'
    or --additional-config.tt.{name} ...
    """


class WrongKey(ConfigError):
    """additional_config[{name!r}] is read by nobody: the options belong under the key "tt". Write
    --additional-config '{{"tt": {{"trace_mode": "none"}}}}' or --additional-config.tt.trace_mode none.
    """


class OptionValue(ConfigError):
    """additional_config["tt"][{name!r}] is {found}: expected {expected}.{hint}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What values an option takes."""

    accepts: Callable[[Any], bool]
    expected: str
    """Completes the sentence "expected ..."."""
    convert: Callable[[Any], Any] = lambda value: value
    """From the JSON value to the field's value."""


def _choice(*values: str) -> Kind:
    return Kind(accepts=lambda value: value in values, expected="one of " + ", ".join(values))


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name) for name in value
    )


_BOOL = Kind(accepts=lambda value: isinstance(value, bool), expected="true or false")
_COUNT = Kind(accepts=lambda value: type(value) is int and value >= 1, expected="an integer of at least 1")
_BYTES = Kind(accepts=lambda value: type(value) is int and value >= 0, expected="a number of bytes, at least 0")
_TEXT = Kind(accepts=lambda value: isinstance(value, str) and bool(value), expected="a text such as steps.jsonl")
_CONSTANT = Kind(
    accepts=lambda value: isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z0-9_]*", value) is not None,
    expected="a name of ttnn.FabricConfig such as FABRIC_1D",
)
_NAMES = Kind(accepts=_is_names, expected='a list of environment variable names such as ["HF_MODEL"]', convert=tuple)


def _option(default: Any, kind: Kind, help_text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help_text})


@dataclass(frozen=True, kw_only=True, slots=True)
class TTConfig:
    """The options; where None is the default, the help says what is done without a value."""

    sample_on_device_mode: Literal["all", "decode_only"] | None = _option(
        None,
        _choice("all", "decode_only"),
        "Which steps sample on the device: all of them or decode alone. Without it sampling runs on the host.",
    )
    always_compat_sampling: bool = _option(
        False, _BOOL, "Sample every step with vLLM's own sampler on the host; for debugging and comparisons."
    )
    trace_mode: Literal["all", "decode_only", "none"] = _option(
        "all",
        _choice("all", "decode_only", "none"),
        "Which calls run as captured traces. Without traces decode steps do not overlap.",
    )
    enable_model_warmup: bool = _option(
        True, _BOOL, "Compile and capture every shape before the server reports healthy."
    )
    trace_region_size: int | None = _option(
        None, _BYTES, "Bytes of DRAM kept for traces on each chip; 50000000 without a value when tracing is on."
    )
    worker_l1_size: int | None = _option(None, _BYTES, "Bytes of L1 for each worker core; ttnn's default without it.")
    l1_small_size: int | None = _option(
        None, _BYTES, "Bytes of L1 kept for small buffers on each core; ttnn's default without it."
    )
    fabric_config: str | None = _option(
        None,
        _CONSTANT,
        "Fabric of a mesh of several chips. Without it FABRIC_1D_RING on a Wormhole Galaxy, FABRIC_2D_TORUS_XY on "
        "a Blackhole Galaxy, else FABRIC_1D; a single chip has none.",
    )
    fabric_reliability_mode: Literal["STRICT_INIT", "RELAXED_INIT", "DYNAMIC_RECONFIG"] | None = _option(
        None,
        _choice("STRICT_INIT", "RELAXED_INIT", "DYNAMIC_RECONFIG"),
        "Whether every link must come up; STRICT_INIT without it.",
    )
    fabric_max_packet_payload_size_bytes: int | None = _option(
        None, _COUNT, "Largest payload of a fabric packet; the router's default without it."
    )
    dispatch_core_axis: Literal["row", "col"] | None = _option(
        None, _choice("row", "col"), "Axis of the dispatch cores; the architecture's default without it."
    )
    optimizations: Literal["performance", "accuracy"] | None = _option(
        None,
        _choice("performance", "accuracy"),
        "Precision preset handed to the model; the model's own choice without it.",
    )
    decode_interleave_enabled: bool = _option(
        True, _BOOL, "Let decode steps run between the prefill steps of long or many prompts."
    )
    decode_interleave_prefill_steps: int = _option(
        2, _COUNT, "Prefill steps in a row that running decodes wait for at most."
    )
    decode_interleave_decode_steps: int = _option(
        1, _COUNT, "Decode steps that run before prefill goes on after such a wait."
    )
    lanes: int | None = _option(
        None,
        _COUNT,
        "Lanes of the engine, each with --max-num-seqs rows and a KV cache of its own, for models that declare "
        "supports_lanes; the same as --data-parallel-size, which LLM(...) does not take. One without it.",
    )
    step_log: str | None = _option(
        None,
        _TEXT,
        "File that every step is written to, a line of JSON each; 'tt-bundle steps FILE' reads it. Several engines add "
        "their number to the name. None without it.",
    )
    step_log_bytes: int = _option(
        64_000_000, _BYTES, "How large the step log grows before it starts anew; the one before is kept as FILE.1."
    )
    register_test_models: bool = _option(False, _BOOL, "Register tt-metal's test models beside the served ones.")
    env_passthrough: tuple[str, ...] = _option(
        (), _NAMES, "Names of environment variables that must reach the worker processes."
    )

    @property
    def traces_prefill(self) -> bool:
        return self.trace_mode == "all"

    @property
    def traces_decode(self) -> bool:
        return self.trace_mode != "none"

    @classmethod
    def from_additional_config(cls, additional: object) -> TTConfig:
        """The options in vLLM's ``additional_config`` (None: all defaults)."""
        if additional is None:
            return cls()
        if not isinstance(additional, Mapping):
            raise NotAMapping(where="additional_config", found=_describe(additional))
        options = {option.name: option for option in fields(cls)}
        for name in additional:
            if name in options:
                raise MisplacedOption(name=name)
            if name != ADDITIONAL_CONFIG_KEY and str(name).lower().replace("-", "_") in _MEANT_FOR_US:
                raise WrongKey(name=name)
        given = additional.get(ADDITIONAL_CONFIG_KEY, {})
        if not isinstance(given, Mapping):
            raise NotAMapping(where='additional_config["tt"]', found=_describe(given))
        values = {}
        for name, value in given.items():
            if name not in options:
                raise UnknownOption(name=name, nearest=_nearest(name, options), known=", ".join(options))
            option = options[name]
            if value is None and option.default is None:
                continue
            values[name] = _checked(name, value, option.metadata["kind"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class LaneShape:
    """The rows of the device's batch: ``lanes`` schedulers with ``per_lane`` rows each."""

    lanes: int
    per_lane: int

    @property
    def rows(self) -> int:
        return self.lanes * self.per_lane


def _checked(name: str, value: object, kind: Kind) -> Any:
    if not kind.accepts(value):
        raise OptionValue(name=name, found=_describe(value), expected=kind.expected, hint=_hint(name, value, kind))
    return kind.convert(value)


def _hint(name: str, value: object, kind: Kind) -> str:
    """How to write what was meant, when a string or a bool stands in for another type."""
    if not isinstance(value, str):
        return ""
    if kind is _BOOL and value.lower() in ("true", "false"):
        return f" Write {value.lower()} without quotes and in lower case: --additional-config.tt.{name} {value.lower()}"
    if kind in (_COUNT, _BYTES) and value.isdecimal():
        return f" Write the number without quotes: {value}"
    return ""


def _nearest(name: object, known: Mapping[str, object]) -> str:
    close = get_close_matches(str(name).lower().replace("-", "_"), known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _describe(value: object) -> str:
    """A JSON value as the user wrote it, with its type where that is not plain to see."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        return f"the string {value!r}"
    return f"{value!r} ({type(value).__name__})"
