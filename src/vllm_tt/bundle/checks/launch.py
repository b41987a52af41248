"""The launch map of older distribution tools: can an entry be chosen, does it agree with the rest?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_tt.bundle.findings import Finding, finding, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_tt.bundle.metadata import Launch, Metadata

__all__ = ["launch_findings"]

_REACHABLE = re.compile(r"default|(blackhole|wormhole_b0|grayskull)(-[1-9][0-9]*card)?")
_SHELL = re.compile(r"\$[({A-Za-z_]|`|\"")
_HOME = re.compile(r"(?:~|/(?:home|Users|root|localdev|mnt|data))/")
_SIZES = {"max_model_len": "max_model_len", "max_num_seqs": "max_num_seqs", "block_size": "block_size"}


def launch_findings(metadata: Metadata) -> Iterator[Finding]:
    """What keeps an entry of the launch map from serving the bundle as the metadata says."""
    if not metadata.launch:
        message = "no launch map: 'tt-model serve' of tt-model up to v4 cannot start this bundle"
        yield finding("TB213", message)
        return
    if "default" not in metadata.launch:
        message = "the launch map has no 'default' entry for machines that it does not name"
        yield finding("TB214", message, key=("launch",))
    for key, entry in metadata.launch.items():
        if not _REACHABLE.fullmatch(key):
            message = f"launch key {shown(key)} can only be chosen with TT_MODEL_MACHINE={key}"
            hint = "the keys are 'default', '<arch>' and '<arch>-<n>card' with arch blackhole, wormhole_b0 or grayskull"
            yield finding("TB214", message, hint=hint, key=("launch", key))
        yield from _conflicts(key, entry, metadata)
        yield from _shell(key, entry)


def _conflicts(key: str, entry: Launch, metadata: Metadata) -> Iterator[Finding]:
    flags = _flags(entry.command)
    model, weights = flags.get("model"), metadata.hf_weights
    at = ("launch", key, "command")
    if model is not None and weights is not None and model != weights:
        yield finding("TB216", f"launch.{key} serves {shown(model)}, but 'hf_weights' is {shown(weights)}", key=at)
    for flag, size in _SIZES.items():
        most = getattr(metadata.limits, size)
        text = flags.get(flag, "")
        if most is not None and text.isdecimal() and int(text[:18]) > most:
            message = f"launch.{key} asks for --{flag} {text[:18]}, above limits.{size} ({most})"
            yield finding("TB216", message, key=at)
    for word in entry.command:
        if _HOME.match(word):
            message = f"launch.{key}.command holds the path {shown(word)}; it exists on one machine only"
            yield finding("TB216", message, key=at)
    script = next((word for word in entry.command if word.endswith("server_example_tt.py")), None)
    if script == "server_example_tt.py":
        message = f"launch.{key} runs 'server_example_tt.py', which is found from one working directory only"
        yield finding("TB216", message, key=at)
    mesh = entry.env.get("MESH_DEVICE")
    if mesh and metadata.mesh_devices and mesh not in metadata.mesh_devices:
        message = f"launch.{key}.env sets MESH_DEVICE={mesh}, which 'mesh_devices' does not list"
        yield finding("TB216", message, key=("launch", key, "env", "MESH_DEVICE"))


def _flags(command: tuple[str, ...]) -> Mapping[str, str]:
    """``--name value`` and ``--name=value``, by the name with underscores."""
    flags: dict[str, str] = {}
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags.setdefault(name.replace("-", "_"), value if equals else following)
    return flags


def _shell(key: str, entry: Launch) -> Iterator[Finding]:
    for name, value in entry.env.items():
        if value is not None and _SHELL.search(value):
            message = f"the value of launch.{key}.env.{name} is expanded by a shell in run.sh"
            yield finding("TB217", message, key=("launch", key, "env", name))
