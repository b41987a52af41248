"""What can be wrong with a bundle: one table of rules with stable codes, and findings as values.

The reader inside vLLM and the validator share both. A rule says how serious the fault is for an
author (severity) and what the reader does about it. In the classes TB0, TB1 and TB2, which the reader
looks at, an error of a bundle is what makes the reader skip it: what costs a field alone is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from vllm_tt.bundle.secrets import redacted

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

    def at(self, file: str, line: int | None = None, column: int | None = None) -> Finding:
        """The finding at a place in a file of the bundle; the empty file is the folder itself."""
        return replace(self, file=file, line=line, column=column)

    def graded(self, severity: Severity) -> Finding:
        """The finding, as serious as its case is."""
        return replace(self, severity=severity)


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
    ("TB007", "note", "quiet", "a folder name that other tools cannot use"),
    ("TB008", "note", "quiet", "the same folder twice"),
    ("TB009", "error", "skip", "a broken symbolic link"),
    ("TB010", "error", "skip", "the bundle cannot be read"),
    ("TB011", "error", "skip", "the metadata is not a regular file"),
    ("TB012", "note", "quiet", "a folder of bundles named by a text that depends on where it is read"),
    ("TB013", "error", "warn", "a tt-model package where a folder of bundles is expected"),
    ("TB101", "error", "skip", "not valid JSON"),
    ("TB102", "warning", "info", "a byte-order mark"),
    ("TB103", "error", "skip", "not UTF-8"),
    ("TB104", "warning", "warn", "a key twice in one object"),
    ("TB105", "error", "skip", "the root is not an object"),
    ("TB106", "error", "skip", "the metadata file is too large"),
    ("TB107", "error", "skip", "nested too deeply"),
    ("TB108", "warning", "quiet", "a number that is not JSON"),
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
    ("TB211", "warning", "quiet", "hf_weights that other tools cannot read"),
    ("TB212", "warning", "quiet", "a malformed launch map"),
    ("TB213", "note", "quiet", "no launch map"),
    ("TB214", "warning", "quiet", "a launch entry that no machine chooses"),
    ("TB215", "warning", "warn", "a schema version that is not known"),
    ("TB216", "warning", "quiet", "a launch entry that contradicts the rest"),
    ("TB217", "warning", "quiet", "a value that a shell would expand"),
    ("TB218", "warning", "quiet", "an unknown mesh device"),
    ("TB219", "warning", "quiet", "limits that contradict one another"),
    ("TB220", "warning", "quiet", "architectures that disagree with arch"),
    ("TB221", "warning", "quiet", "a version or licence that tools cannot read"),
    ("TB222", "warning", "quiet", "a parser that vLLM does not have"),
    ("TB301", "error", "quiet", "the module is nowhere"),
    ("TB302", "warning", "quiet", "a module of tt-metal that is not importable here"),
    ("TB303", "error", "quiet", "the module has no such class"),
    ("TB304", "error", "quiet", "main_class is not a class"),
    ("TB305", "warning", "quiet", "a helper module that an installed one hides"),
    ("TB306", "note", "quiet", "a module name that several bundles use"),
    ("TB307", "note", "quiet", "a helper name that several bundles use"),
    ("TB308", "error", "quiet", "a helper named like a standard-library module"),
    ("TB309", "warning", "quiet", "a package named like tt-metal's"),
    ("TB310", "warning", "quiet", "the import could not be checked, or fails"),
    ("TB311", "error", "quiet", "the source is not valid Python"),
    ("TB312", "error", "quiet", "the import hangs, exits or dies"),
    ("TB313", "warning", "quiet", "a relative import in a top-level module"),
    ("TB314", "warning", "quiet", "code that reaches outside the bundle"),
    ("TB401", "error", "quiet", "a method is missing"),
    ("TB402", "error", "quiet", "a keyword is not accepted"),
    ("TB403", "error", "quiet", "a parameter is never sent"),
    ("TB404", "error", "quiet", "not a class or static method"),
    ("TB405", "error", "quiet", "not a plain method"),
    ("TB406", "error", "quiet", "arguments passed by position do not fit"),
    ("TB407", "warning", "quiet", "only the allocator for uniform caches"),
    ("TB408", "warning", "quiet", "a token capacity that is no positive integer"),
    ("TB409", "note", "quiet", "an architecture that vLLM does not know"),
    ("TB410", "error", "quiet", "an unknown decode contract"),
    ("TB411", "warning", "quiet", "images under another name"),
    ("TB412", "error", "quiet", "the class is abstract"),
    ("TB501", "error", "quiet", "capabilities that are not a dict of the class"),
    ("TB502", "error", "quiet", "a capability of the wrong type"),
    ("TB503", "note", "quiet", "an unknown capability"),
    ("TB504", "error", "quiet", "asynchronous decode without its read-back"),
    ("TB505", "warning", "quiet", "start_pos is declared to matter and does not"),
    ("TB506", "error", "quiet", "device sampling without sampling_params"),
    ("TB601", "error", "warn", "two bundles for one architecture"),
    ("TB602", "note", "quiet", "a bundle in place of a built-in model"),
    ("TB603", "warning", "quiet", "two bundles of one name"),
    ("TB701", "error", "warn", "a requirement that cannot be read"),
    ("TB702", "warning", "skip", "a requirement that is not met"),
    ("TB703", "note", "quiet", "a requirement that cannot be checked"),
    ("TB704", "warning", "skip", "a missing package"),
    ("TB705", "warning", "quiet", "a range that no version meets"),
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
    ("TB901", "error", "quiet", "an archive with an unsafe path"),
    ("TB902", "error", "quiet", "an archive with links or devices"),
    ("TB903", "error", "quiet", "an archive that expands to too much"),
    ("TB904", "error", "quiet", "an archive with a path twice"),
    ("TB905", "error", "quiet", "an archive without a bundle"),
    ("TB906", "error", "quiet", "not an archive"),
    ("TB907", "error", "quiet", "a file differs from the lock"),
    ("TB908", "error", "quiet", "a locked file is missing"),
    ("TB909", "error", "quiet", "a file that the lock does not list"),
    ("TB910", "error", "quiet", "a malformed lock"),
    ("TB911", "warning", "quiet", "no lock"),
    ("TB951", "error", "quiet", "a repository without a bundle"),
    ("TB952", "note", "quiet", "a repository with several bundles"),
    ("TB953", "error", "quiet", "a repository that is not there or not open to the token"),
    ("TB954", "error", "quiet", "the Hub cannot be reached"),
    ("TB956", "error", "quiet", "two repositories for one folder"),
    ("TB957", "error", "quiet", "a bundle that must not be pushed"),
    ("TB959", "note", "quiet", "a README whose tags cannot be read"),
    ("TB960", "error", "quiet", "a repository that changed meanwhile"),
    ("TB961", "error", "quiet", "not the name of a repository"),
    ("TB962", "note", "quiet", "scripts that are not run"),
)


def finding(
    code: str, message: str, *, reader: Reader | None = None, hint: str = "", key: tuple[str, ...] = ()
) -> Finding:
    """A finding of the rule ``code``; ``reader`` replaces what the rule has the reader do.

    An error that the reader does not skip the bundle for, as it would by the rule, is a warning.
    """
    rule = RULES[code]
    milder = rule.reader is Reader.SKIP and reader not in (None, Reader.SKIP)
    severity = Severity.WARNING if milder and rule.severity is Severity.ERROR else rule.severity
    message, hint = redacted(message), redacted(hint)
    return Finding(code=code, severity=severity, reader=reader or rule.reader, message=message, hint=hint, key=key)


def shown(value: object, limit: int = 80) -> str:
    """``value`` for a message: quoted, on one line, escaped where it would not print, no secrets, cut to ``limit``."""
    text = redacted(repr(value))
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"
