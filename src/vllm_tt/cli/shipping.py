"""What the commands about archives share: options, sizes, streams, and words for contents."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from vllm_tt.bundle.files import MAX_SIZE, Choice
from vllm_tt.bundle.findings import Severity
from vllm_tt.bundle.paths import amount
from vllm_tt.cli.exits import Exit
from vllm_tt.cli.report import finding_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm_tt.bundle.archive import Progress
    from vllm_tt.bundle.findings import Finding

__all__ = [
    "ARCHIVE_OR_FOLDER",
    "Watched",
    "binary_stdin",
    "choice_of",
    "choice_options",
    "count",
    "counted",
    "exit_for",
    "max_size_option",
    "records",
]

ARCHIVE_OR_FOLDER = click.Path(path_type=Path, exists=True)

_SIZE = re.compile(r"(\d{1,15})\s*(?:([kmgt])i?b?|b)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """The bytes that a text names; the units are powers of 1024."""
    match = _SIZE.fullmatch(value.strip())
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{value!r} is no size. Examples: 4096, 512M, 2G.")
    return int(match[1]) << _UNITS[(match[2] or "").lower()]


def max_size_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--max-size``."""
    return click.option(
        "--max-size",
        callback=_size,
        default=str(MAX_SIZE),
        metavar="SIZE",
        help=f"Most bytes of all files together, such as 2G; {amount(MAX_SIZE)} by default.",
    )(command)


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say what of a folder is shipped; ``choice_of`` takes them."""
    options: tuple[Callable[..., Any], ...] = (
        click.option("--include-weights", is_flag=True, help="Ship model weights too."),
        click.option(
            "--allow-secret",
            "allow_secrets",
            metavar="PATH",
            multiple=True,
            help="Ship this file of the bundle although it looks like a secret; repeatable.",
        ),
        click.option(
            "--exclude",
            metavar="GLOB",
            multiple=True,
            help="Leave out what matches, as a line of .bundleignore does; repeatable.",
        ),
        click.option("--dereference", is_flag=True, help="Ship copies of files outside the folder that links lead to."),
        max_size_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def choice_of(options: dict[str, Any]) -> Choice:
    """The choice that the options of a command ask for; takes them out of ``options``."""
    names = ("include_weights", "allow_secrets", "exclude", "dereference", "max_size")
    return Choice(**{name: options.pop(name) for name in names})


def binary_stdin() -> BinaryIO:
    """Stdin for an archive; a misuse when it is a terminal."""
    if sys.stdin.isatty():
        raise click.UsageError("An archive is expected on stdin, which is a terminal.")
    return sys.stdin.buffer


class Watched:
    """A stream that tells how much has been read."""

    def __init__(self, source: BinaryIO, progress: Progress) -> None:
        self._source = source
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._progress(len(data))
        return data


def count(findings: Iterable[Finding], severity: Severity = Severity.ERROR) -> int:
    """How many findings are that serious."""
    return sum(found.severity is severity for found in findings)


def records(findings: Iterable[Finding], label: str) -> list[dict[str, Any]]:
    """The findings for the JSON document; ``label`` is what they are about."""
    return [finding_record(one, label if one.line is None else f"{label}/{one.file}") for one in findings]


def counted(number: int, what: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def exit_for(findings: Iterable[Finding]) -> Exit:
    """The exit code of a command that was refused for its findings."""
    unreadable = any(found.code in ("TB010", "TB808") for found in findings)
    return Exit.LOCAL_IO if unreadable else Exit.FINDINGS
