"""The messages that docs/troubleshooting.md quotes are those of the package or of vLLM, and other tests see each."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OF_VLLM = ("sampling_params.py", "config/device.py")
OF_OTHERS = ("[Errno 98] Address already in use", "Failed to infer device type")
"""Which no test of ours sees."""
ENOUGH = 20
"""Letters that a text must have beside its placeholders to be known by them."""


def paths():
    (vllm,) = importlib.util.find_spec("vllm").submodule_search_locations
    return [*sorted((ROOT / "src").rglob("*.py")), *(Path(vllm) / name for name in OF_VLLM)]


@cache
def texts():
    """Regular expressions of every text in the sources, as its literal parts with anything between them."""
    found = {}
    for path in paths():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and (template := ast.get_docstring(node)):
                parts = re.split(r"{\w+[^}]*}", template.replace("{{", "\0").replace("}}", "\1"))
                parts = [part.replace("\0", "{").replace("\1", "}") for part in parts]
            elif isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else None for one in node.values]
                parts = "".join("\0" if part is None else part for part in parts).split("\0")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = re.split(r"%[sdr]|{\w+[^}]*}", node.value)
            else:
                continue
            parts = [" ".join(f"|{part}|".split())[1:-1] for part in parts]
            if sum(map(len, parts)) >= ENOUGH:
                found[".*".join(map(re.escape, parts))] = parts
    return found


@cache
def source_of(message):
    """The literal parts of the most literal text that ``message`` is."""
    flat = " ".join(message.split())
    near = [(pattern, parts) for pattern, parts in texts().items() if all(part in flat for part in parts)]
    matching = [parts for pattern, parts in near if re.fullmatch(pattern, flat)]
    return max(matching, key=lambda parts: sum(map(len, parts)), default=None)


@pytest.mark.parametrize("number", range(len(QUOTED)))
def test_a_quoted_message_is_one_that_is_printed(number):
    message = QUOTED[number].strip()
    assert message in OF_OTHERS or source_of(message) is not None, message


@cache
def words_of_tests():
    """The texts of all tests, each string as a whole."""
    folders = [ROOT / "tests" / name for name in ("unit", "integration", "acceptance", "support")]
    found = []
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= ENOUGH // 2:
                found.append(" ".join(node.value.split()))
    return "\n".join(found)


@pytest.mark.parametrize("number", range(len(QUOTED)))
def test_a_quoted_message_is_seen_by_a_test(number):
    message = QUOTED[number].strip()
    if message.startswith(OF_OTHERS):
        pytest.skip("another program's")
    longest = max(source_of(message) or [message], key=len).strip()
    assert longest[:40] in words_of_tests() or longest[-40:] in words_of_tests(), longest
