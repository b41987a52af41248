"""The repository's README.md: our tags are added to its front matter, and nothing else of it is touched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_tt.errors import TTError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tt.bundle.metadata import Metadata

__all__ = ["CARD_NAME", "FrontMatterUnreadable", "TAGS", "new_card", "with_tags"]

CARD_NAME = "README.md"
TAGS = ("tt-bundle", "tt-model-cache", "tenstorrent", "vllm")
"""How bundles are found on the Hub; the second one is tt-model's."""

_LICENSES = ("apache-2.0", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "isc", "lgpl-3.0", "mit", "mpl-2.0", "unlicense")
"""Those that the Hub knows by the same name; it refuses a README with one that it does not know."""

_FRONT = re.compile(r"\A---[ \t]*(\r?\n)(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


class FrontMatterUnreadable(TTError):
    """The front matter of README.md cannot be read as YAML with a list of tags."""


def with_tags(text: str, tags: Sequence[str]) -> str:
    """The README with ``tags`` among those of its front matter. Raises FrontMatterUnreadable."""
    front = _FRONT.match(text)
    if front is None:
        return _block(["---", *_tag_lines(tags), "---", ""], _newline_of(text)) + text
    newline, yaml_text = front[1], front[2]
    start, end, present = _tags_in(yaml_text)
    missing = [tag for tag in tags if tag not in present]
    if not missing:
        return text
    lines = _block([*_tag_lines([*present, *missing]), ""], newline)
    changed = yaml_text[:start] + lines + yaml_text[end:]
    return text[: front.start(2)] + changed + text[front.end(2) :]


def new_card(name: str, repo: str, metadata: Metadata, tags: Sequence[str]) -> str:
    """The README of a repository that has none."""
    import yaml

    license_id = (metadata.license or "").lower()
    weights = metadata.hf_weights or ""
    facts = {
        "license": license_id if license_id in _LICENSES else None,
        "base_model": weights if re.fullmatch(r"[\w.-]+/[\w.-]+", weights) else None,
        "tags": list(dict.fromkeys([*tags, *metadata.tags])),
    }
    known = {key: value for key, value in facts.items() if value}
    front = yaml.safe_dump(known, sort_keys=False, allow_unicode=True)
    about = f"{metadata.description.strip()}\n\n" if metadata.description else ""
    return (
        f"---\n{front}---\n\n# {name}\n\n{about}"
        f"A vLLM model bundle for Tenstorrent devices: `{metadata.main_class}` serves {metadata.arch}.\n\n"
        f"```\ntt-bundle pull {repo}\n```\n"
    )


def _tags_in(yaml_text: str) -> tuple[int, int, list[str]]:
    """Where the lines of ``tags`` begin and end in the front matter, and its tags; at its end when it has none."""
    import yaml

    try:
        root = yaml.compose(yaml_text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(yaml_text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise FrontMatterUnreadable from None
    if root is None:
        return len(yaml_text), len(yaml_text), []
    if not isinstance(root, yaml.MappingNode) or root.flow_style or not isinstance(values, dict):
        raise FrontMatterUnreadable
    for key, value in root.value:
        if key.value == "tags":
            present = values["tags"]
            if isinstance(present, str):
                present = [present]
            if not isinstance(present, list | None) or not all(isinstance(tag, str) for tag in present or ()):
                raise FrontMatterUnreadable
            end = _end_of_line(yaml_text, key.end_mark.index, value.end_mark.index)
            return key.start_mark.index, end, present or []
    return len(yaml_text), len(yaml_text), []


def _end_of_line(text: str, key_end: int, value_end: int) -> int:
    """Where the lines of a value end: a block's mark is at what follows it, after blank lines and notes."""
    kept = text[:value_end].rstrip()
    while len(kept) > key_end and kept.rpartition("\n")[2].lstrip().startswith("#"):
        kept = kept.rpartition("\n")[0].rstrip()
    newline = text.find("\n", max(len(kept), key_end))
    return len(text) if newline < 0 else newline + 1


def _tag_lines(tags: Sequence[str]) -> list[str]:
    import yaml

    return str(yaml.safe_dump({"tags": list(tags)}, sort_keys=False, allow_unicode=True)).splitlines()


def _block(lines: Sequence[str], newline: str) -> str:
    return newline.join(lines)


def _newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
