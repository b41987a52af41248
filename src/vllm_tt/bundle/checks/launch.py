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
        where = f"launch.{key}" if key.isprintable() else shown(f"launch.{key}")
        if not _REACHABLE.fullmatch(key):
            value = key if key.isprintable() else shown(key)
            message = f"launch key {shown(key)} can only be chosen with TT_MODEL_MACHINE={value}"
            hint = "the keys are 'default', '<arch>' and '<arch>-<n>card' with arch blackhole, wormhole_b0 or grayskull"
            yield finding("TB214", message, hint=hint, key=("launch", key))
        yield from _conflicts(key, where, entry, metadata)
        yield from _shell(key, where, entry)


def _conflicts(key: str, where: str, entry: Launch, metadata: Metadata) -> Iterator[Finding]:
    flags = _flags(entry.command)
    model, weights = flags.get("model"), metadata.hf_weights
    at = ("launch", key, "command")
    if model is not None and weights is not None and model != weights:
        yield finding("TB216", f"{where} serves {shown(model)}, but 'hf_weights' is {shown(weights)}", key=at)
    for flag, size in _SIZES.items():
        most = getattr(metadata.limits, size)
        text = flags.get(flag, "")
        if most is not None and text.isdecimal() and int(text[:18]) > most:
            message = f"{where} asks for --{flag} {text[:18]}, above limits.{size} ({most})"
            yield finding("TB216", message, key=at)
    for word in entry.command:
        if _HOME.match(word):
            message = f"{where}.command holds the path {shown(word)}; it exists on one machine only"
            yield finding("TB216", message, key=at)
    script = next((word for word in entry.command if word.endswith("server_example_tt.py")), None)
    if script == "server_example_tt.py":
        message = f"{where} runs 'server_example_tt.py', which is found from one working directory only"
        yield finding("TB216", message, key=at)
    mesh = entry.env.get("MESH_DEVICE")
    if mesh and metadata.mesh_devices and mesh not in metadata.mesh_devices:
        message = f"{where}.env sets MESH_DEVICE={shown(mesh)}, which 'mesh_devices' does not list"
        yield finding("TB216", message, key=("launch", key, "env", "MESH_DEVICE"))


def _flags(command: tuple[str, ...]) -> Mapping[str, str]:
    """``--name value`` and ``--name=value``, by the name with underscores."""
    flags: dict[str, str] = {}
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags.setdefault(name.replace("-", "_"), value if equals else following)
    return flags


def _shell(key: str, where: str, entry: Launch) -> Iterator[Finding]:
    for name, value in entry.env.items():
        if value is not None and _SHELL.search(value):
            message = f"the value of {shown(name)} in {where}.env is expanded by a shell in run.sh"
            yield finding("TB217", message, key=("launch", key, "env", name))
