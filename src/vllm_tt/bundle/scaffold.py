"""Writes a new bundle from a template: all files are made first, nothing is written unless all can be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from vllm_tt._data import data_path
from vllm_tt._version import __version__
from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.metadata import FILE_NAME, parse
from vllm_tt.bundle.names import plain_name
from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MODULE", "TEMPLATES", "BadChoice", "LaunchNeedsWeights", "NewBundle", "TargetNotEmpty", "files", "write"]

TEMPLATES: dict[str, str] = {
    "host": "A working adapter that computes on the host; serves at once, on an emulated mesh too.",
    "ttnn": "A skeleton for hardware: every method of the contract, written with ttnn operations.",
    "builtin": "Metadata alone, for a generator that is part of tt-metal.",
}
MODULE = "generator_vllm"
"""The adapter's module, as tt-metal calls it."""

_FOLDER = Path(__file__).parent / "templates"
_REFERENCE = "bundles/llama-host/generator_vllm.py"
_REFERENCE_CLASS = "LlamaForCausalLM"


class TargetNotEmpty(TTError):
    """{folder} is not empty: it holds {found}. Choose another folder, or replace files with --force."""

    exit_code = 4


class BadChoice(ConfigError):
    """A bundle cannot be made of these choices: {problem}."""


class LaunchNeedsWeights(ConfigError):
    """A launch entry names the weights it starts with: add --hf-weights ORG/NAME."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewBundle:
    """What the author chose."""

    template: str
    """A key of `TEMPLATES`."""
    arch: str
    name: str
    main_class: str | None = None
    """``module:Class`` of tt-metal, for the template ``builtin``."""
    hf_weights: str | None = None
    launch: bool = False
    """Add the launch map that older distribution tools start servers from."""

    @property
    def class_name(self) -> str:
        """The adapter's class: named as the architecture, and as none of the template's own classes."""
        plain = plain_name(self.arch)
        return f"{plain}Adapter" if plain in ("Layer", "Llama", "Model", "Weights") else plain


def files(new: NewBundle) -> dict[str, str]:
    """The texts of the bundle's files by name, the metadata last. Raises BadChoice."""
    main_class = new.main_class or f"{MODULE}:{new.class_name}"
    values = {"arch": new.arch, "name": new.name, "class_name": new.class_name, "main_class": main_class}
    made = {"README.md": _rendered(new.template, "README.md", values)}
    if new.template == "host":
        text = data_path(_REFERENCE).read_text(encoding="utf-8")
        made[f"{MODULE}.py"] = re.sub(rf"\b{_REFERENCE_CLASS}\b", new.class_name, text)
    elif new.template == "ttnn":
        made[f"{MODULE}.py"] = _rendered(new.template, f"{MODULE}.py", values)
    made[FILE_NAME] = _metadata_text(new, main_class)
    return made


def write(target: Path, made: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write the files into ``target``, which must be empty or not exist unless ``force``. Deletes nothing."""
    there = sorted(path.name for path in target.iterdir()) if target.is_dir() else []
    if there and not force:
        found = ", ".join(there[:3]) + (f" and {len(there) - 3} more" if len(there) > 3 else "")
        raise TargetNotEmpty(folder=target, found=found)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in made.items():
        path = target / name
        path.write_text(text, encoding="utf-8", newline="\n")
        paths.append(path)
    return paths


def _rendered(template: str, name: str, values: Mapping[str, str]) -> str:
    return Template((_FOLDER / template / f"{name}.in").read_text(encoding="utf-8")).substitute(values)


def _metadata_text(new: NewBundle, main_class: str) -> str:
    root: dict[str, Any] = {
        "schema_version": 1,
        "arch": new.arch,
        "main_class": main_class,
        "name": new.name,
        "version": "0.1.0",
        "description": f"{plain_name(new.arch)}: {_DESCRIPTIONS[new.template]}",
        "license": "Apache-2.0",
        "tags": [new.template],
        "requires": {"vllm-tt": f">={__version__}"},
    }
    if new.hf_weights:
        root["hf_weights"] = new.hf_weights
    if new.launch:
        if not new.hf_weights:
            raise LaunchNeedsWeights
        command = ["python3", "-m", "vllm.entrypoints.cli.main", "serve", new.hf_weights]
        root["launch"] = {"default": {"command": command, "env": {}}}
    text = json.dumps(root, indent=2, ensure_ascii=False) + "\n"
    fault = next((one for one in parse(text.encode()).findings if one.severity is not Severity.NOTE), None)
    if fault is not None:
        raise BadChoice(problem=fault.message.removesuffix("; ignored"))
    return text


_DESCRIPTIONS = {
    "host": "computed on the host with torch, over a paged KV cache.",
    "ttnn": "computed on a Tenstorrent mesh with ttnn, over a paged KV cache.",
    "builtin": "served by a generator of tt-metal.",
}
