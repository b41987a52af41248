"""What the metadata's fields mean together: rules that a schema cannot say."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vllm_tt.bundle.checks.ranges import is_empty
from vllm_tt.bundle.findings import Finding, Severity, finding, shown
from vllm_tt.mesh import MESH_GRIDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_tt.bundle.metadata import Limits, Metadata

    Rule = Callable[[Metadata], Iterator[Finding]]

__all__ = ["FIELD_RULES", "field_findings", "power_of_two_findings"]

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_MAX_REPO = 96
_LICENSE = re.compile(r"\(?[A-Za-z0-9][A-Za-z0-9.+-]*\)?( (AND|OR|WITH) \(?[A-Za-z0-9][A-Za-z0-9.+-]*\)?)*")
_NOT_IDENTIFIERS = frozenset({"apache", "apache2", "asl", "bsd", "gpl", "lgpl", "mpl", "proprietary", "other"})
_PLAIN_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?")
"""The usual ones, known to be good without packaging, which takes longer to import than all else takes to run."""
_TILE = 32


def weights(metadata: Metadata) -> Iterator[Finding]:
    """``hf_weights`` names a repository of the Hub."""
    text = metadata.hf_weights
    if text is None:
        return
    if "://" in text:
        after = re.sub(r"^\w+://[^/]*/", "", text)
        hint = f"did you mean {shown('/'.join(after.split('/')[:2]))}?" if "huggingface.co/" in text else ""
        message = f"'hf_weights' must be a repository id such as 'org/name', got the URL {shown(text)}"
        yield finding("TB211", message, hint=hint, key=("hf_weights",))
    elif text.startswith(("/", "~", "./", "../", "\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        message = f"'hf_weights' is the local path {shown(text)}; it exists on one machine only"
        yield finding("TB211", message, key=("hf_weights",))
    elif not _is_repository(text):
        message = f"'hf_weights' must be a repository id such as 'org/name', got {shown(text)}"
        yield finding("TB211", message, key=("hf_weights",))


def _is_repository(text: str) -> bool:
    odd = ".." in text or "--" in text or len(text) > _MAX_REPO or text.endswith((".git", "-", "."))
    return bool(_REPO.fullmatch(text)) and not odd


def mesh_names(metadata: Metadata) -> Iterator[Finding]:
    """``mesh_devices`` and ``limits.per_device`` name meshes of the platform's own table."""
    places: list[tuple[str, tuple[str, ...]]] = [(name, ("mesh_devices",)) for name in metadata.mesh_devices]
    places += [(name, ("limits", "per_device", name)) for name in metadata.limits.per_device]
    by_letters = {known.lower(): known for known in MESH_GRIDS}
    for name, key in places:
        if name not in MESH_GRIDS:
            close = [by_letters[one] for one in get_close_matches(name.lower(), by_letters, n=1)]
            hint = f"did you mean {close[0]!r}?" if close else ""
            message = f"unknown mesh device {shown(name)}; known: {', '.join(MESH_GRIDS)}"
            yield finding("TB218", message, hint=hint, key=key)


def limits(metadata: Metadata) -> Iterator[Finding]:
    """Limits of one mesh stay within those of all; pages are whole tiles."""
    whole = metadata.limits
    for key, one in _limit_sets(metadata):
        yield from _sizes(one, key)
        for size in ("max_model_len", "max_num_seqs", "max_tokens_all_users"):
            mine, most = getattr(one, size), getattr(whole, size)
            if mine is not None and most is not None and mine > most:
                message = f"{_dotted(key)}.{size} is {mine}, above limits.{size} ({most})"
                yield finding("TB219", message, key=(*key, size))


def _limit_sets(metadata: Metadata) -> Iterator[tuple[tuple[str, ...], Limits]]:
    yield ("limits",), metadata.limits
    for name, one in metadata.limits.per_device.items():
        yield ("limits", "per_device", name), one


def _sizes(sizes: Limits, key: tuple[str, ...]) -> Iterator[Finding]:
    if sizes.block_size is not None and sizes.block_size % _TILE:
        message = f"{_dotted(key)}.block_size is {sizes.block_size}, which is not a multiple of {_TILE}"
        yield finding("TB219", message, key=(*key, "block_size"))
    total, one = sizes.max_tokens_all_users, sizes.max_model_len
    if total is not None and one is not None and total < one:
        message = f"{_dotted(key)}.max_tokens_all_users is {total}, below max_model_len ({one})"
        yield finding("TB219", message, key=(*key, "max_tokens_all_users"))


def power_of_two_findings(metadata: Metadata) -> Iterator[Finding]:
    """For classes that derive from tt_transformers, whose warm-up takes powers of two."""
    for key, sizes in _limit_sets(metadata):
        length = sizes.max_model_len
        if length is not None and length & (length - 1):
            message = f"{_dotted(key)}.max_model_len is {length}; tt_transformers warms up powers of two only"
            yield finding("TB219", message, key=(*key, "max_model_len"))


def _dotted(key: tuple[str, ...]) -> str:
    text = ".".join(key)
    return text if text.isprintable() else shown(text)


def version(metadata: Metadata) -> Iterator[Finding]:
    """``version`` orders, ``license`` is an identifier."""
    if metadata.version is not None and not _PLAIN_VERSION.fullmatch(metadata.version):
        from packaging.version import InvalidVersion, Version

        try:
            Version(metadata.version)
        except InvalidVersion:
            message = f"'version' is not a version that orders (PEP 440): {shown(metadata.version)}"
            yield finding("TB221", message, hint="such as '1.0.0'", key=("version",))
    text = metadata.license
    if text is not None and (not _LICENSE.fullmatch(text) or text.lower() in _NOT_IDENTIFIERS):
        message = f"'license' does not look like an SPDX identifier: {shown(text)}"
        found = finding("TB221", message, hint="such as 'Apache-2.0'; see https://spdx.org/licenses", key=("license",))
        yield found.graded(Severity.NOTE)


def ranges(metadata: Metadata) -> Iterator[Finding]:
    """Version ranges that some version meets."""
    asked = metadata.requires
    named = (("python", asked.python), ("vllm", asked.vllm), ("ttnn", asked.ttnn), ("vllm-tt", asked.vllm_tt))
    for name, text in named:
        if text is not None and is_empty(text):
            yield finding("TB705", f"requires.{name}: no version meets {shown(text)}", key=("requires", name))


FIELD_RULES: tuple[Rule, ...] = (weights, mesh_names, limits, version, ranges)
"""Each looks at the whole record."""


def field_findings(metadata: Metadata) -> Iterator[Finding]:
    """What the rules of the table find."""
    for rule in FIELD_RULES:
        yield from rule(metadata)
