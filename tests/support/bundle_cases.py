"""The bundles that are tests as data: folders under ``tests/bundles`` with the findings each must yield.

``expected.txt`` has a line ``CODE severity reader place message`` for each finding, a hint on a line
of its own below it; ``place`` is ``line:column`` or ``-``, ``{version}`` the package's own version.
A folder without the file must yield no finding.
"""

from pathlib import Path

from vllm_tt import __version__

ROOT = Path(__file__).parents[1] / "bundles"
VALID = sorted(path for path in (ROOT / "valid").iterdir())
INVALID = sorted(path for path in (ROOT / "invalid").iterdir())


def expected(case):
    file = case / "expected.txt"
    return file.read_text("utf-8").replace("{version}", __version__).splitlines() if file.exists() else []


def described(findings):
    lines = []
    for found in findings:
        place = "-" if found.line is None else f"{found.line}:{found.column}"
        lines.append(f"{found.code} {found.severity.value} {found.reader.value} {place} {found.message}")
        lines += [f"  hint: {found.hint}"] if found.hint else []
    return lines


def name(case):
    return case.name
