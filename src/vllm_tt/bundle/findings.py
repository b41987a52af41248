"""What can be wrong with a bundle: one table of rules with stable codes, and findings as values.

The reader inside vLLM and the validator share both. A rule says how serious the fault is for an
author (severity) and what the reader does about it, which is often milder: a bundle that can be
served is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["RULES", "Finding", "Reader", "Rule", "Severity", "finding", "shown"]


class Severity(str, Enum):
    """How serious a finding is for the bundle's author."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Reader(str, Enum):
    """What registration inside vLLM does about a finding."""

    SKIP = "skip"
    WARN = "warn"
    INFO = "info"
    QUIET = "quiet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of fault. Codes are never reused."""

    code: str
    severity: Severity
    reader: Reader
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault in one bundle."""

    code: str
    severity: Severity
    reader: Reader
    message: str
    hint: str = ""
    key: tuple[str, ...] = ()
    """Where in the metadata: the keys from the root down."""
    file: str = "vllm_metadata.json"
    """Which file of the bundle, where ``line`` says more than the message."""
    line: int | None = None
    column: int | None = None

    @property
    def text(self) -> str:
        """The message, after its place in the bundle where that is known."""
        if self.line is None:
            return self.message
        place = f"{self.file}:{self.line}" if self.column is None else f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.message}"


def _rules(*rows: tuple[str, str, str, str]) -> dict[str, Rule]:
    return {
        code: Rule(code=code, severity=Severity(severity), reader=Reader(reader), title=title)
        for code, severity, reader, title in rows
    }


RULES: dict[str, Rule] = _rules(
    ("TB001", "error", "warn", "the folder of bundles is not a folder"),
    ("TB002", "error", "warn", "the folder of bundles cannot be read"),
    ("TB003", "error", "warn", "a bundle where a folder of bundles is expected"),
    ("TB004", "error", "skip", "no metadata"),
    ("TB005", "error", "skip", "the metadata file has another name"),
    ("TB006", "warning", "info", "a hidden folder"),
    ("TB008", "note", "quiet", "the same folder twice"),
    ("TB009", "error", "skip", "a broken symbolic link"),
    ("TB010", "error", "skip", "the bundle cannot be read"),
    ("TB011", "error", "skip", "the metadata is not a regular file"),
    ("TB013", "error", "warn", "a tt-model package where a folder of bundles is expected"),
    ("TB101", "error", "skip", "not valid JSON"),
    ("TB102", "warning", "info", "a byte-order mark"),
    ("TB103", "error", "skip", "not UTF-8"),
    ("TB104", "error", "warn", "a key twice in one object"),
    ("TB105", "error", "skip", "the root is not an object"),
    ("TB106", "error", "skip", "the metadata file is too large"),
    ("TB107", "error", "skip", "nested too deeply"),
    ("TB108", "error", "quiet", "a number that is not JSON"),
    ("TB109", "warning", "quiet", "an unprintable character"),
    ("TB201", "error", "skip", "a required key is missing"),
    ("TB202", "error", "skip", "a value of the wrong type"),
    ("TB203", "error", "skip", "not an identifier"),
    ("TB204", "note", "quiet", "the architecture is prefixed already"),
    ("TB206", "error", "skip", "main_class names no class"),
    ("TB207", "error", "skip", "main_class has a part that cannot be"),
    ("TB208", "error", "skip", "main_class names no module"),
    ("TB209", "error", "skip", "main_class names a nested class"),
    ("TB210", "note", "quiet", "an unknown key"),
    ("TB211", "error", "quiet", "hf_weights that other tools cannot read"),
    ("TB212", "error", "quiet", "a malformed launch map"),
    ("TB215", "error", "warn", "a schema version that is not known"),
    ("TB220", "warning", "quiet", "architectures that disagree with arch"),
    ("TB601", "error", "warn", "two bundles for one architecture"),
    ("TB701", "error", "warn", "a requirement that cannot be read"),
    ("TB702", "warning", "skip", "a requirement that is not met"),
    ("TB703", "note", "quiet", "a requirement that cannot be checked"),
    ("TB704", "warning", "skip", "a missing package"),
    ("TB801", "note", "quiet", "a symbolic link inside the bundle"),
    ("TB802", "error", "quiet", "a symbolic link that leaves the bundle or leads nowhere"),
    ("TB804", "error", "quiet", "model weights"),
    ("TB805", "error", "quiet", "a file that is named like a secret"),
    ("TB806", "error", "quiet", "a file that holds a secret"),
    ("TB807", "error", "quiet", "neither a file nor a folder"),
    ("TB808", "error", "quiet", "a file that cannot be read"),
    ("TB809", "error", "quiet", "a name that other systems cannot hold"),
    ("TB812", "note", "quiet", "an executable file"),
    ("TB813", "error", "quiet", "a file that the bundle needs is left out"),
    ("TB814", "note", "quiet", "an empty folder"),
    ("TB815", "error", "quiet", "too many files or bytes"),
    ("TB817", "warning", "quiet", "a stale lock file"),
    ("TB907", "error", "quiet", "a file differs from the lock"),
    ("TB908", "error", "quiet", "a locked file is missing"),
    ("TB909", "error", "quiet", "a file that the lock does not list"),
    ("TB910", "error", "quiet", "a malformed lock"),
    ("TB911", "warning", "quiet", "no lock"),
)


def finding(
    code: str, message: str, *, reader: Reader | None = None, hint: str = "", key: tuple[str, ...] = ()
) -> Finding:
    """A finding of the rule ``code``; ``reader`` replaces what the rule has the reader do."""
    rule = RULES[code]
    return Finding(code=code, severity=rule.severity, reader=reader or rule.reader, message=message, hint=hint, key=key)


def shown(value: object, limit: int = 80) -> str:
    """``value`` for a message: quoted, on one line, unprintable characters escaped, cut to ``limit``."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"
