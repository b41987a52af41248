"""The `vllm serve` command of one bundle: its weights and declared defaults, under what the user asks for."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_tt import env
from vllm_tt.bundle.launch import Options, is_flag, launch_entry, machine_keys, parse_options, server_words
from vllm_tt.bundle.names import registered_name
from vllm_tt.bundle.reading import path_text
from vllm_tt.errors import ConfigError
from vllm_tt.models.entry import Entry
from vllm_tt.models.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_tt.bundle.metadata import Limits, Metadata
    from vllm_tt.bundle.reading import Bundle

__all__ = ["NoWeights", "NotRegistered", "ServeCommand", "serve_command"]

_CONFIG = "--additional-config"


class NoWeights(ConfigError):
    """{bundle} does not say which weights it serves: name a checkpoint folder or Hub id with --model."""


class NotRegistered(ConfigError):
    """{bundle} would not be served: {reason}."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeCommand:
    """A server to start."""

    words: tuple[str, ...]
    """``vllm serve MODEL ...``."""
    environ: Mapping[str, str]
    """Variables to set."""
    unset: tuple[str, ...] = ()
    """Variables to remove."""
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """What to type in a shell."""
        removed = [word for name in self.unset for word in ("-u", name)]
        given = [f"{name}={shlex.quote(value)}" for name, value in self.environ.items()]
        return " ".join([*(["env", *removed] if removed else []), *given, shlex.join(self.words)])


def serve_command(
    bundle: Bundle, *, model: str | None, words: Sequence[str], environ: Mapping[str, str]
) -> ServeCommand:
    """The command that serves ``bundle``.

    ``words`` are the user's own arguments of `vllm serve` and win over the launch entry of this machine,
    which wins over the bundle's limits and serving options.
    """
    metadata = bundle.metadata
    notes = _registered(bundle, environ)
    mesh = environ.get(env.MESH_DEVICE.name) or environ.get(env.EMULATE.name)
    if doubt := Entry.of_bundle(metadata.arch, bundle).doubt(environ):
        notes.append(doubt)
    named, own = parse_options(words)
    launched, variables = _launched(metadata, environ, notes)
    weights = model or named or launched[0] or metadata.hf_weights
    if weights is None:
        raise NoWeights(bundle=bundle.name)
    options = _declared(metadata, mesh, revision=weights == metadata.hf_weights) | launched[1]
    config = _merged(_config(metadata, mesh), _taken_config(options), _taken_config(own))
    options = {flag: values for flag, values in options.items() if flag not in own}
    if config:
        options[_CONFIG] = [json.dumps(config)]
    settings = {env.EXTRA_MODELS_DIR.name: str(bundle.folder.parent)}
    if metadata.module.startswith("models."):  # tt-metal's generators read their weights from there
        settings[env.HF_MODEL.name] = weights
    settings |= {name: value for name, value in variables.items() if value is not None}
    return ServeCommand(
        words=("vllm", "serve", weights, *_words(options), *_kept(words)),
        environ=settings,
        unset=tuple(name for name, value in variables.items() if value is None),
        notes=tuple(notes),
    )


def _registered(bundle: Bundle, environ: Mapping[str, str]) -> list[str]:
    """Notes on architectures that another entry serves; raises NotRegistered when none is left."""
    found = resolve({**environ, env.EXTRA_MODELS_DIR.name: str(bundle.folder.parent)})
    if skipped := next((one for one in found.skipped if one.folder == bundle.folder), None):
        raise NotRegistered(bundle=path_text(bundle.folder), reason=skipped.reason)
    lost = {one.arch: one.winner.origin for one in found.shadowed if one.bundle.folder == bundle.folder}
    archs = [registered_name(arch) for arch in bundle.metadata.architectures]
    texts = [f"{arch} is served by {lost[arch]}" for arch in archs if arch in lost]
    if len(texts) == len(archs):
        reason = f"{', '.join(texts)}; move one of them to another folder"
        raise NotRegistered(bundle=path_text(bundle.folder), reason=reason)
    return texts


def _launched(
    metadata: Metadata, environ: Mapping[str, str], notes: list[str]
) -> tuple[tuple[str | None, Options], Mapping[str, str | None]]:
    found = launch_entry(metadata, machine_keys(environ))
    if found is None:
        return (None, {}), {}
    key, entry = found
    notes.append(f"defaults of the launch entry {key!r} are used")
    return parse_options(server_words(entry.command)), entry.env


def _declared(metadata: Metadata, mesh: str | None, *, revision: bool) -> Options:
    options: Options = {}
    if revision and metadata.hf_revision:
        options["--revision"] = [metadata.hf_revision]
    for name in ("max_model_len", "max_num_seqs", "block_size"):
        if (value := _limit(metadata.limits, mesh, name)) is not None:
            options[f"--{name.replace('_', '-')}"] = [str(value)]
    if metadata.serving.tool_parser:
        options |= {"--enable-auto-tool-choice": [], "--tool-call-parser": [metadata.serving.tool_parser]}
    if metadata.serving.reasoning_parser:
        options["--reasoning-parser"] = [metadata.serving.reasoning_parser]
    return options


def _limit(limits: Limits, mesh: str | None, name: str) -> int | None:
    """A limit of this mesh, else of all."""
    own = limits.per_device.get(mesh or "")
    value: int | None = getattr(own, name, None)
    return getattr(limits, name) if value is None else value


def _config(metadata: Metadata, mesh: str | None) -> dict[str, Any]:
    size = _limit(metadata.limits, mesh, "trace_region_size")
    return _merged({"tt": {"trace_region_size": size}} if size is not None else {}, metadata.serving.additional_config)


def _taken_config(options: Options) -> dict[str, Any]:
    """The additional configuration in ``options``, whole or dotted, which is taken out of them."""
    config: dict[str, Any] = {}
    for flag in [one for one in options if one.partition(".")[0] == _CONFIG]:
        value = _parsed(" ".join(options.pop(flag)))
        for key in reversed(flag.split(".")[1:]):
            value = {key: value}
        config = _merged(config, value if isinstance(value, dict) else {})
    return config


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _merged(*configs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings in one; later ones win."""
    out: dict[str, Any] = {}
    for config in configs:
        for key, value in config.items():
            both = isinstance(value, dict) and isinstance(out.get(key), dict)
            out[key] = _merged(out[key], value) if both else value
    return out


def _kept(words: Sequence[str]) -> list[str]:
    """The user's own words, without the model and the additional configuration, which are placed elsewhere."""
    kept: list[str] = []
    taken = True  # the model, where it is named by position
    for word in words:
        if is_flag(word):
            taken = word.partition("=")[0].partition(".")[0].replace("_", "-") in ("--model", _CONFIG)
        if not taken:
            kept.append(word)
    return kept


def _words(options: Options) -> list[str]:
    return [word for flag, values in options.items() for word in (flag, *values)]
