"""The bundles that are tests as data: folders under ``tests/bundles`` with the findings each must yield.

``expected.txt`` has what the reader finds, ``validate.txt`` what the validator finds beyond that: a line
``CODE severity reader place message`` for each finding, a hint on a line of its own below it. ``place``
is ``line:column`` of the metadata, ``file:line:column``, or ``-``; ``{version}`` is the package's own
version and ``{click}`` the file of an installed module. A folder without the files must yield no
finding; the note that there is no launch map (TB213), which most have, is listed where it matters.
"""

from pathlib import Path

import click

from vllm_tt import __version__

ROOT = Path(__file__).parents[1] / "bundles"
VALID = sorted(path for path in (ROOT / "valid").iterdir())
INVALID = sorted(path for path in (ROOT / "invalid").iterdir())
METADATA = "vllm_metadata.json"


def expected(case, file="expected.txt"):
    path = case / file
    text = path.read_text("utf-8") if path.exists() else ""
    return text.replace("{version}", __version__).replace("{click}", click.__file__).splitlines()


def described(findings):
    lines = []
    for found in findings:
        place = "-" if found.line is None else f"{found.line}:{found.column}"
        if found.file not in ("", METADATA):
            place = f"{found.file}:{place}"
        lines.append(f"{found.code} {found.severity.value} {found.reader.value} {place} {found.message}")
        lines += [f"  hint: {found.hint}"] if found.hint else []
    return lines


def expected_warning(case):
    """The line that the reader must log for a case that it skips; None for one that it registers."""
    line = next((line for line in expected(case) if line.split()[2] == "skip"), None)
    if line is None:
        return None
    _, _, _, place, message = line.split(" ", 4)
    reason = message if place == "-" else f"{METADATA}:{place}: {message}"
    return f"Skipping bundle {case}: {reason}. Run 'tt-bundle validate {case}' for details."


def name(case):
    return case.name
