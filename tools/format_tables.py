"""Writes the tables of docs/bundle-format.md from the code: ``python tools/format_tables.py [--check]``.

Each stands between ``<!-- NAME: ... -->`` and ``<!-- end of NAME -->``.
"""

import re
import sys
from pathlib import Path

from vllm_tt.bundle.checks.capabilities import KNOWN
from vllm_tt.bundle.explain import EXPLANATIONS
from vllm_tt.bundle.findings import RULES, Reader
from vllm_tt.contract import CALLS

PAGE = Path(__file__).parents[1] / "docs" / "bundle-format.md"
SERVING = {Reader.SKIP: "skipped", Reader.WARN: "served, with a warning", Reader.INFO: "served", Reader.QUIET: "served"}
WORDS = {bool: "true or false", int: "integer", tuple: "tuple", dict: "dict", str: "string"}


def row(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def codes():
    yield row("code", "severity", "a bundle with it is", "what is wrong", "what to do")
    yield row(*["---"] * 5)
    for code, rule in RULES.items():
        serving = SERVING[rule.reader] if code < "TB8" else "-"
        yield row(code, rule.severity.value, serving, rule.title, EXPLANATIONS[code].fix)


def calls():
    yield row("method", "called on", "by position", "by name, always", "by name, sometimes", "needed")
    yield row(*["---"] * 6)
    for call in CALLS:
        sometimes = "; ".join(f"`{name}` ({condition})" for name, condition in call.sometimes.items())
        yield row(
            f"`{call.method}`",
            "the class" if call.on_class else "the instance",
            names(call.always[: call.positional]),
            names(call.always[call.positional :]),
            sometimes or "-",
            call.needed or "optional",
        )


def names(parameters):
    return ", ".join(f"`{name}`" for name in parameters) or "-"


def capabilities():
    yield row("key", "type")
    yield row("---", "---")
    for key, kind in KNOWN.items():
        yield row(f"`{key}`", WORDS[kind])


TABLES = {"codes": codes, "calls": calls, "capabilities": capabilities}


def page(text):
    """The page with its tables written anew."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        body = "\n" + "\n".join(table()) + "\n\n"
        text, count = pattern.subn(lambda found, body=body: found[1] + body + found[2], text)
        if count != 1:
            sys.exit(f"{PAGE}: {count} places for the table {name!r}")
    return text


def main():
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" not in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"{PAGE} is not what the code says: run python tools/format_tables.py")


if __name__ == "__main__":
    main()
