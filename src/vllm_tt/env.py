"""Every environment variable that the package reads, in one typed table.

An unset or blank variable yields its default. A value that cannot be read is an error naming the
variable, never a silent default.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vllm_tt.errors import ConfigError
from vllm_tt.mesh import EMULATED, MESH_GRIDS, MeshGrid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BUILTIN_MODELS",
    "CACHE_DIR",
    "CLASS_OVERRIDES",
    "DEEPSEEK_V3_HF_MODEL",
    "EMULATE",
    "ENGINE_START",
    "EXTRA_MODELS_DIR",
    "HF_MODEL",
    "IGNORE_REQUIRES",
    "LLAMA_TEXT_VER",
    "MESH_DEVICE",
    "METAL_HOME",
    "MODEL_MACHINE",
    "QWEN3_TEXT_VER",
    "QWEN35_TEXT_VER",
    "TT_MODEL_BUNDLES_DIR",
    "VARIABLES",
    "VISIBLE_DEVICES",
    "EnvError",
    "NoHome",
    "Variable",
]

T = TypeVar("T")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class EnvError(ConfigError):
    """{name}={found!r} is not valid: expected {expected}. Unset it for the default ({default})."""


class NoHome(ConfigError):
    """There is no home folder to keep the cache in. Set TT_VLLM_CACHE to a folder, or HOME."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(Generic[T]):
    """One environment variable."""

    name: str
    parse: Callable[[str], T]
    """From the stripped, non-empty text to the value; a ValueError means the text is not valid."""
    default: Callable[[Mapping[str, str]], T]
    """The value when the variable is unset or blank, given the environment."""
    expected: str
    """What a valid value looks like, to complete the sentence "expected ..."."""
    otherwise: str
    """The default, in words."""
    help: str

    def get(self, environ: Mapping[str, str] | None = None) -> T:
        """The value in ``environ`` (the process's own by default); raises EnvError."""
        environ = os.environ if environ is None else environ
        text = environ.get(self.name, "").strip()
        if not text:
            return self.default(environ)
        try:
            return self.parse(text)
        except ValueError:
            raise EnvError(name=self.name, found=text, expected=self.expected, default=self.otherwise) from None


def _text(name: str, otherwise: str, help_text: str) -> Variable[str | None]:
    return Variable(name=name, parse=str, default=_none, expected="text", otherwise=otherwise, help=help_text)


def _switch(name: str, *, default: bool, help_text: str) -> Variable[bool]:
    return Variable(
        name=name,
        parse=_bool,
        default=lambda _environ: default,
        expected=f"one of {', '.join(_TRUE)} or {', '.join(_FALSE)}",
        otherwise="1" if default else "0",
        help=help_text,
    )


def _one_of(name: str, *choices: str, help_text: str) -> Variable[str]:
    """The first choice is the default."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(text)
        return text.lower()

    return Variable(
        name=name,
        parse=parse,
        default=lambda _environ: choices[0],
        expected=f"one of {', '.join(choices)}",
        otherwise=choices[0],
        help=help_text,
    )


def _none(_environ: Mapping[str, str]) -> None:
    return None


def _bool(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(text)
    return word in _TRUE


def _machine(text: str) -> str:
    if text not in EMULATED:
        raise ValueError(text)
    return text


def _class_overrides(text: str) -> dict[str, str]:
    pairs = [part.strip() for part in text.split(",") if part.strip()]
    found = [re.fullmatch(r"(\w+)\s*=\s*([\w.]+:\w+)", pair) for pair in pairs]
    if not all(found):
        raise ValueError(text)
    return {match[1]: match[2] for match in found if match}


def _default_cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME", "").strip()
    try:
        return (Path(base) if base else Path.home() / ".cache") / "vllm-tt"
    except RuntimeError:
        raise NoHome from None


def _folder(text: str) -> Path:
    """A path whose ``~`` no shell has expanded, as in a container's or a unit's environment file."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(text) from None


_MESHES = ", ".join(MESH_GRIDS)

EMULATE: Variable[str | None] = Variable(
    name="TT_EMULATE",
    parse=_machine,
    default=_none,
    expected=f"one of {', '.join(EMULATED)}",
    otherwise="real devices",
    help="Machine to emulate: ttnn runs on the host against a mock cluster, kernels do not compute.",
)
MESH_DEVICE: Variable[MeshGrid | None] = Variable(
    name="MESH_DEVICE",
    parse=MeshGrid.parse,
    default=_none,
    expected=f'one of {_MESHES}, or a grid such as "(2,4)"',
    otherwise="one row of all devices",
    help="Mesh to open: a machine's name or a grid of (rows, columns).",
)
VISIBLE_DEVICES = _text(
    "TT_VISIBLE_DEVICES", "all devices", "Device ids that the process may open, comma separated; read by tt-metal too."
)
METAL_HOME: Variable[Path | None] = Variable(
    name="TT_METAL_HOME",
    parse=Path,
    default=_none,
    expected="a folder",
    otherwise="the installed ttnn package",
    help="The tt-metal checkout that holds the built-in generators.",
)
EXTRA_MODELS_DIR = _text("EXTRA_MODELS_DIR", "no bundles", "Folder whose sub-folders are model bundles.")
BUILTIN_MODELS = _switch(
    "TT_VLLM_BUILTIN_MODELS", default=True, help_text="Register the generators built into tt-metal, beside the bundles."
)
CLASS_OVERRIDES: Variable[dict[str, str]] = Variable(
    name="TT_MODEL_CLASS_OVERRIDES",
    parse=_class_overrides,
    default=lambda _environ: {},
    expected='"Architecture=module:Class", comma separated',
    otherwise="no override",
    help="Adapter classes that replace those of bundles and built-ins, by architecture.",
)
LLAMA_TEXT_VER = _text(
    "TT_LLAMA_TEXT_VER", "tt_transformers", "Which of tt-metal's generators serves Llama text models."
)
QWEN3_TEXT_VER = _text(
    "TT_QWEN3_TEXT_VER", "tt_transformers", "Which of tt-metal's generators serves Qwen 3 text models."
)
QWEN35_TEXT_VER = _text(
    "TT_QWEN35_TEXT_VER", "qwen36_blackhole", "Which of tt-metal's generators serves Qwen 3.5 and 3.6 models."
)
DEEPSEEK_V3_HF_MODEL = _text(
    "DEEPSEEK_V3_HF_MODEL", "none", "Checkpoint folder whose weights tt-metal's generator of DeepSeek V3 loads."
)
IGNORE_REQUIRES = _switch(
    "TT_BUNDLE_IGNORE_REQUIRES",
    default=False,
    help_text="Load bundles whose version requirements the installation does not meet.",
)
MODEL_MACHINE = _text(
    "TT_MODEL_MACHINE",
    "what the driver tells",
    "Key of the launch entry that 'tt-bundle serve' takes as this machine's.",
)
HF_MODEL = _text(
    "HF_MODEL",
    "the model being served",
    "Checkpoint folder or Hub id whose weights adapters load, tt-metal's included.",
)
CACHE_DIR: Variable[Path] = Variable(
    name="TT_VLLM_CACHE",
    parse=_folder,
    default=_default_cache,
    expected="a folder",
    otherwise="$XDG_CACHE_HOME/vllm-tt or ~/.cache/vllm-tt",
    help="Where emulated machines, kernels built for them and the demo's checkpoint are kept.",
)

ENGINE_START = _one_of(
    "TT_ENGINE_START",
    "auto",
    "fork",
    "spawn",
    help_text="How the engine's process starts: fork shares what the server has imported, spawn imports it again, "
    "auto forks where that is safe.",
)

TT_MODEL_BUNDLES_DIR: Variable[Path | None] = Variable(
    name="TT_MODEL_BUNDLES_DIR",
    parse=Path,
    default=_none,
    expected="a folder",
    otherwise="~/.cache/tt-model/bundles",
    help="Where tt-model keeps its bundles; bundles are pulled there while EXTRA_MODELS_DIR is not set.",
)

VARIABLES: tuple[Variable[Any], ...] = (
    EMULATE,
    MESH_DEVICE,
    VISIBLE_DEVICES,
    METAL_HOME,
    EXTRA_MODELS_DIR,
    BUILTIN_MODELS,
    CLASS_OVERRIDES,
    LLAMA_TEXT_VER,
    QWEN3_TEXT_VER,
    QWEN35_TEXT_VER,
    DEEPSEEK_V3_HF_MODEL,
    IGNORE_REQUIRES,
    HF_MODEL,
    MODEL_MACHINE,
    CACHE_DIR,
    ENGINE_START,
    TT_MODEL_BUNDLES_DIR,
)
"""Every variable, in the order of the documentation."""
